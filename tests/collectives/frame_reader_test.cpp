#include "collectives/tcp/frame_reader.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cstring>

#include "collectives/frame_sender.h"
#include "collectives/tcp/socket.h"

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

constexpr AeadKey kKey{1, 2, 3};

// The same on a connection with keys: each part of a frame is followed by its tag.
Bytes sealed_bytes(FrameSeal seal) {
  const Bytes plain = wire_bytes();
  Aead aead(kKey, Aead::Way::kSeal);
  Bytes bytes;
  const ByteView all = plain;
  for (const ByteView part : {all.first(sizeof(FrameHeader)), all.subspan(sizeof(FrameHeader))}) {
    Bytes out(part.begin(), part.end());
    aead.begin();
    if (seal == FrameSeal::kSecret) {
      aead.crypt(part, out.data());
    } else {
      aead.cover(part);
    }
    const AeadTag tag = aead.tag();
    bytes.insert(bytes.end(), out.begin(), out.end());
    bytes.insert(bytes.end(), tag.begin(), tag.end());
  }
  return bytes;
}

struct Read {
  FrameReader::End end;
  std::size_t frames = 0;
  std::string error;
};

// What a reader makes of these bytes, with nothing behind them.
Read read(const Bytes& bytes, FrameSeal seal = FrameSeal::kPlain) {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const Fd near(ends[0]), far(ends[1]);
  REQUIRE(::send(near.get(), bytes.data(), bytes.size(), 0) == ssize_t(bytes.size()));
  FrameReader reader(std::make_shared<BufferPool>(), kWireBytesMax);
  reader.open({seal, {}, kKey});
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

TEST_CASE("a whole frame under a key is delivered once, and once only") {
  for (const FrameSeal seal : {FrameSeal::kTagged, FrameSeal::kSecret}) {
    Bytes frame = sealed_bytes(seal);
    const Read whole = read(frame, seal);
    CHECK(whole.end == FrameReader::End::kNothingMore);
    CHECK(whole.frames == 1);
    const Bytes again = frame;
    frame.insert(frame.end(), again.begin(), again.end());
    const Read twice = read(frame, seal);
    CHECK(twice.end == FrameReader::End::kError);
    CHECK(twice.frames == 1);
  }
}

TEST_CASE("a bit that flips anywhere in a frame is found at once, in its length too") {
  FrameSeal seal = FrameSeal::kPlain;
  SUBCASE("with a checksum") {}
  SUBCASE("with tags") {
    seal = FrameSeal::kTagged;
  }
  SUBCASE("encrypted") {
    seal = FrameSeal::kSecret;
  }
  const Bytes frame = seal == FrameSeal::kPlain ? wire_bytes() : sealed_bytes(seal);
  for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    CAPTURE(bit);
    Bytes damaged = frame;
    damaged[bit / 8] = static_cast<std::uint8_t>(damaged[bit / 8] ^ (1u << (bit % 8)));
    const Read found = read(damaged, seal);
    CHECK(found.end == FrameReader::End::kError);
    CHECK(found.frames == 0);
    CHECK_FALSE(found.error.empty());
  }
}

}  // namespace starling::collectives
