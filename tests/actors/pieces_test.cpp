#include "actors/gateway/pieces.h"

#include <doctest/doctest.h>

namespace starling::actors {
namespace {

using Outcome = Pieces::Outcome;

constexpr PieceLimits kLimits{10 * kPieceBytes, 12 * kPieceBytes, 20 * kPieceBytes};

Bytes message_of(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 13 + i / 251);
  return bytes;
}

struct Sent {
  Outcome outcome = Outcome::kMore;
  Bytes message;
};

// Sends the pieces [from, to) of a message and gives the last outcome.
Sent send(Pieces& pieces, const std::string& connection, const std::string& key,
          const Bytes& message, std::size_t from, std::size_t to) {
  Sent sent;
  for (std::size_t n = from; n < to; ++n) {
    const Bytes frame = piece_of(message, n);
    const auto taken = pieces.take(connection, key, frame);
    sent = {taken.outcome, Bytes(taken.message.begin(), taken.message.end())};
  }
  return sent;
}

// A concatenation of temporaries is what g++ 12 warns of.
std::string numbered(const char* name, std::size_t number) {
  return std::string(name).append(std::to_string(number));
}

}  // namespace

TEST_CASE("pieces: a message of any size comes out as it went in") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kPieceBytes, kPieceBytes + 1,
                                 3 * kPieceBytes, 5 * kPieceBytes - 7, 10 * kPieceBytes}) {
    CAPTURE(size);
    Pieces pieces(kLimits);
    const Bytes message = message_of(size);
    for (std::size_t n = 0; n < pieces_of(message); ++n)
      CHECK(piece_of(message, n).size() <= kFrameBytes);
    const auto taken = send(pieces, "a", "k", message, 0, pieces_of(message));
    REQUIRE(taken.outcome == Outcome::kWhole);
    CHECK(taken.message == message);
    CHECK(pieces.bytes() == 0);
  }
}

TEST_CASE("pieces: of several connections they do not mix, and small messages come between") {
  Pieces pieces(kLimits);
  const Bytes one = message_of(3 * kPieceBytes), two = message_of(2 * kPieceBytes + 5);
  CHECK(send(pieces, "a", "k", one, 0, 2).outcome == Outcome::kMore);
  CHECK(send(pieces, "b", "l", two, 0, 2).outcome == Outcome::kMore);
  CHECK(pieces.take("a", "k", Bytes{1, 2, 3}).outcome == Outcome::kWhole);
  const auto first = send(pieces, "a", "k", one, 2, 3);
  CHECK(first.message == one);
  const auto second = send(pieces, "b", "l", two, 2, 3);
  CHECK(second.message == two);
}

TEST_CASE("pieces: what is out of place is no message, and the next one is whole again") {
  Pieces pieces(kLimits);
  const Bytes message = message_of(4 * kPieceBytes);
  CHECK(send(pieces, "a", "k", message, 2, 3).outcome == Outcome::kMisplaced);
  CHECK(send(pieces, "a", "k", message, 0, 1).outcome == Outcome::kMore);
  CHECK(send(pieces, "a", "k", message, 2, 3).outcome == Outcome::kMisplaced);
  CHECK(send(pieces, "a", "k", message, 1, 2).outcome == Outcome::kMisplaced);
  Bytes longer = piece_of(message, 0);
  longer.push_back(0);
  CHECK(pieces.take("a", "k", longer).outcome == Outcome::kMisplaced);
  // The sender gave up in the middle and begins another.
  CHECK(send(pieces, "a", "k", message, 0, 2).outcome == Outcome::kMore);
  CHECK(send(pieces, "a", "k", message, 0, 4).outcome == Outcome::kWhole);
  CHECK(pieces.bytes() == 0);
}

TEST_CASE("pieces: a connection's unfinished message is nobody else's") {
  Pieces pieces(kLimits);
  const Bytes message = message_of(3 * kPieceBytes);
  CHECK(send(pieces, "a", "k", message, 0, 1).outcome == Outcome::kMore);
  CHECK(send(pieces, "a", "other", message, 1, 2).outcome == Outcome::kMisplaced);
}

TEST_CASE("pieces: a message beyond the bound is refused with its first piece") {
  Pieces pieces(kLimits);
  const Bytes message = message_of(10 * kPieceBytes + 1);
  CHECK(send(pieces, "a", "k", message, 0, 1).outcome == Outcome::kOversize);
  CHECK(pieces.bytes() == 0);
}

// Whoever has one key cannot take the room of the others, and all together not more than there is.
TEST_CASE("pieces: what is unfinished is bounded by key and in all, the longest silent gives way") {
  Pieces pieces(kLimits);
  const Bytes message = message_of(10 * kPieceBytes);
  send(pieces, "honest", "l", message, 0, 5);
  for (int i = 0; i < 50; ++i)
    CHECK(send(pieces, numbered("c", i), "k", message, 0, 9).outcome == Outcome::kMore);
  CHECK(pieces.bytes() <= 17 * kPieceBytes);
  CHECK(send(pieces, "honest", "l", message, 5, 10).outcome == Outcome::kWhole);
  for (int i = 0; i < 50; ++i) send(pieces, numbered("d", i), numbered("key ", i), message, 0, 9);
  CHECK(pieces.bytes() <= kLimits.all_bytes);
  pieces.forget("d49");
  CHECK(pieces.bytes() <= 11 * kPieceBytes);
}

}  // namespace starling::actors
