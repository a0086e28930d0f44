#include "collectives/transport_agreement.h"

#include <doctest/doctest.h>

namespace starling::collectives {
namespace {

using namespace transport_command;

const std::string kLibrary = "nccl 2.28.9";
const Bytes kId{1, 2, 3};

template <class Command>
const Command* among(const TransportCommands& commands) {
  for (const auto& command : commands)
    if (const auto* found = std::get_if<Command>(&command)) return found;
  return nullptr;
}

TransportAgreement member(Rank self, const std::string& library = kLibrary) {
  return {self, 3, library, "no library was found"};
}

TransportCommands answer(TransportAgreement& talk, const TransportMessage& word, Rank from = 0) {
  auto commands = talk.on_word(from, word);
  REQUIRE_MESSAGE(commands, commands.error().text());
  return commands.value();
}

TEST_CASE("transport agreement: rank 0 offers an id, all connect with it") {
  TransportAgreement first = member(0), other = member(2);
  CHECK(other.begin().empty());
  const auto begun = first.begin();
  REQUIRE(among<MakeId>(begun));
  CHECK(among<MakeId>(begun)->attempt == 1);
  const auto offered = first.id_made(1, kId);
  REQUIRE(offered.size() == 3);
  CHECK(std::get<Send>(offered[0]).to == 1);
  CHECK(std::get<Send>(offered[1]).to == 2);
  CHECK(among<Connect>(offered)->id == kId);
  const auto connected = answer(other, among<Send>(offered)->word);
  CHECK(std::holds_alternative<GiveUp>(connected[0]));
  CHECK(among<Connect>(connected)->id == kId);
  CHECK(among<Connect>(connected)->attempt == 1);
  const auto said = first.ready(1);
  REQUIRE(among<Say>(said));
  CHECK(among<Say>(said)->on_device);
  CHECK(among<Say>(said)->why == kLibrary);
  CHECK(other.ready(1).empty());  // one tells
}

TEST_CASE("transport agreement: in a world of one nothing is said") {
  TransportAgreement alone(0, 1, kLibrary, "");
  CHECK(alone.begin().empty());
}

TEST_CASE("transport agreement: without a library at rank 0 there is no attempt, and it says why") {
  TransportAgreement first = member(0, "");
  const auto begun = first.begin();
  REQUIRE(begun.size() == 1);
  CHECK_FALSE(among<Say>(begun)->on_device);
  CHECK(among<Say>(begun)->why == "no library was found");
}

TEST_CASE("transport agreement: a member with another library, or none, refuses for good") {
  for (const std::string& library : {std::string("nccl 2.30.7"), std::string()}) {
    CAPTURE(library);
    TransportAgreement first = member(0), other = member(1, library);
    first.begin();
    const auto offered = first.id_made(1, kId);
    const auto refused = answer(other, among<Send>(offered)->word);
    REQUIRE(among<Send>(refused));
    CHECK_FALSE(among<Connect>(refused));
    const auto lost = answer(first, among<Send>(refused)->word, 1);
    CHECK(among<GiveUp>(lost));
    CHECK_FALSE(among<RetryIn>(lost));
    CHECK(among<Say>(lost)->why ==
          std::string("rank 1: ") +
              (library.empty() ? "no library was found" : "it has nccl 2.30.7"));
    CHECK(first.retry().empty());
    CHECK(first.failed(1, "later").empty());
  }
}

TEST_CASE(
    "transport agreement: a failed attempt is tried again after 1, 4 and 16 seconds, then no "
    "more") {
  TransportAgreement first = member(0), other = member(1);
  first.begin();
  for (const std::uint32_t ms : {1000u, 4000u, 16000u}) {
    const std::uint32_t attempt = first.attempt();
    const auto offered = first.id_made(attempt, kId);
    answer(other, among<Send>(offered)->word);
    const auto told = other.failed(attempt, "init: no such device");
    CHECK(among<GiveUp>(told));
    const auto lost = answer(first, among<Send>(told)->word, 1);
    CHECK(among<GiveUp>(lost));
    REQUIRE(among<RetryIn>(lost));
    CHECK(among<RetryIn>(lost)->ms == ms);
    CHECK(first.failed(attempt, "here too").empty());  // the first word counts
    const auto again = first.retry();
    CHECK(among<MakeId>(again)->attempt == attempt + 1);
    CHECK(first.retry().empty());
  }
  const auto end = first.failed(4, "init: no such device");
  CHECK_FALSE(among<RetryIn>(end));
  CHECK(among<Say>(end)->why == "init: no such device");
  CHECK(first.retry().empty());
}

TEST_CASE("transport agreement: what is over is not heard") {
  TransportAgreement first = member(0), other = member(1);
  first.begin();
  first.id_made(1, kId);
  first.failed(1, "no");
  first.retry();
  CHECK(first.id_made(1, kId).empty());
  CHECK(first.ready(1).empty());
  CHECK(answer(first, TransportRefusal{1, true, "late"}, 2).empty());
  answer(other, TransportOffer{2, kLibrary, kId});
  CHECK(other.failed(1, "late").empty());
}

TEST_CASE("transport agreement: what a rank cannot have said is refused") {
  TransportAgreement first = member(0), other = member(1);
  first.begin();
  CHECK(first.on_word(1, TransportRefusal{2, false, ""}).has_error());
  CHECK(first.on_word(1, TransportOffer{3, kLibrary, kId}).has_error());
  CHECK(other.on_word(2, TransportOffer{1, kLibrary, kId}).has_error());
  CHECK(other.on_word(0, TransportRefusal{1, false, ""}).has_error());
  answer(other, TransportOffer{1, kLibrary, kId});
  CHECK(other.on_word(0, TransportOffer{1, kLibrary, kId}).has_error());
}

TEST_CASE(
    "transport agreement: whoever can have no path any more says so once, and nobody tries again") {
  TransportAgreement first = member(0), other = member(1), alone = member(0);
  first.begin();
  const auto offered = first.id_made(1, kId);
  answer(other, among<Send>(offered)->word);
  const auto refused = other.failed(1, "it hangs", /*for_good=*/true);
  REQUIRE(among<Send>(refused));
  const auto lost = answer(first, among<Send>(refused)->word, 1);
  CHECK(among<Say>(lost)->why == "rank 1: it hangs");
  CHECK_FALSE(among<RetryIn>(lost));
  alone.begin();
  const auto own = alone.failed(1, "it hangs", /*for_good=*/true);
  CHECK(among<Say>(own)->why == "it hangs");
  CHECK_FALSE(among<RetryIn>(own));
}

TEST_CASE("transport agreement: words come back as they were sent, and nothing else is read") {
  const TransportMessage offer = TransportOffer{7, kLibrary, kId},
                         refusal = TransportRefusal{3, true, "because"};
  const auto first = decode_transport_message(encode_transport_message(offer));
  REQUIRE(first.has_value());
  CHECK(std::get<TransportOffer>(first.value()).attempt == 7);
  CHECK(std::get<TransportOffer>(first.value()).library == kLibrary);
  CHECK(std::get<TransportOffer>(first.value()).id == kId);
  const auto second = decode_transport_message(encode_transport_message(refusal));
  REQUIRE(second.has_value());
  CHECK(std::get<TransportRefusal>(second.value()).for_good);
  CHECK(std::get<TransportRefusal>(second.value()).reason == "because");
  const TransportMessage left = TransportLeft{{5, 6}, 2, true};
  const auto third = decode_transport_message(encode_transport_message(left));
  REQUIRE(third.has_value());
  CHECK(std::get<TransportLeft>(third.value()).epoch == EpochId{5, 6});
  CHECK(std::get<TransportLeft>(third.value()).attempt == 2);
  CHECK(std::get<TransportLeft>(third.value()).revoked);
  for (const TransportMessage& word : {offer, refusal, left}) {
    const Bytes whole = encode_transport_message(word);
    for (std::size_t n = 0; n < whole.size(); ++n)
      CHECK(decode_transport_message(ByteView(whole).first(n)).has_error());
    Bytes longer = whole;
    longer.push_back(0);
    CHECK(decode_transport_message(longer).has_error());
  }
  TransportOffer large{1, kLibrary, Bytes(1024)};
  Bytes larger = encode_transport_message(large);
  CHECK(decode_transport_message(larger).has_value());
  const std::string text(1000, 'x');
  const auto cut =
      decode_transport_message(encode_transport_message(TransportRefusal{1, false, text}));
  CHECK(std::get<TransportRefusal>(cut.value()).reason.size() == 256);
}

}  // namespace
}  // namespace starling::collectives
