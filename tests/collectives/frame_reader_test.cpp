#include "collectives/tcp/frame_reader.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cstring>

#include "collectives/tcp/socket.h"
#include "collectives/transport.h"

namespace starling::collectives {
namespace {

constexpr std::size_t kWireBytesMax = 1 << 20;

// A frame as it goes over the wire.
Bytes wire_bytes() {
  const Bytes payload = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const Frame frame = make_frame({.kind = FrameKind::kVote, .version = 7}, Payload(share(payload)));
  Bytes bytes(sizeof frame.header + frame.payload->size());
  std::memcpy(bytes.data(), &frame.header, sizeof frame.header);
  std::memcpy(bytes.data() + sizeof frame.header, frame.payload->data(), frame.payload->size());
  return bytes;
}

struct Read {
  FrameReader::End end;
  std::size_t frames = 0;
  std::string error;
};

// What a reader makes of these bytes, with nothing behind them.
Read read(const Bytes& bytes) {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const Fd near(ends[0]), far(ends[1]);
  REQUIRE(::send(near.get(), bytes.data(), bytes.size(), 0) == ssize_t(bytes.size()));
  FrameReader reader(std::make_shared<BufferPool>(), kWireBytesMax);
  Read result{};
  const auto deliver = [&](const Frame&) { return ++result.frames > 0; };
  do {
    result.end = reader.read(far.get(), deliver);
  } while (result.end == FrameReader::End::kMore);
  result.error = reader.error();
  return result;
}

}  // namespace

TEST_CASE("a whole frame is delivered once") {
  const Read whole = read(wire_bytes());
  CHECK(whole.end == FrameReader::End::kNothingMore);
  CHECK(whole.frames == 1);
}

TEST_CASE("a bit that flips anywhere in a frame is found at once, in its length too") {
  const Bytes frame = wire_bytes();
  for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    CAPTURE(bit);
    Bytes damaged = frame;
    damaged[bit / 8] = static_cast<std::uint8_t>(damaged[bit / 8] ^ (1u << (bit % 8)));
    const Read found = read(damaged);
    CHECK(found.end == FrameReader::End::kError);
    CHECK(found.frames == 0);
    CHECK_FALSE(found.error.empty());
  }
}

}  // namespace starling::collectives
