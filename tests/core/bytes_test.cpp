#include "core/base/bytes.h"

#include <doctest/doctest.h>

namespace starling {
namespace {

// The text comes as an argument: with a constant one g++ 12 follows the writer's growth and warns
// of a copy that cannot happen.
[[gnu::noinline]] Bytes sample(const std::string& text = "abc") {
  ByteWriter writer;
  writer.put<std::uint8_t>(7);
  writer.put<std::uint32_t>(0x01020304);
  writer.put_text(text);
  writer.put(1.5f);
  writer.put_bytes(Bytes{9, 8});
  return std::move(writer).take();
}

TEST_CASE("bytes: little-endian, without padding") {
  CHECK(sample() == Bytes{7, 4, 3, 2, 1, 3, 0, 0, 0, 'a', 'b', 'c', 0, 0, 0xc0, 0x3f, 9, 8});
}

TEST_CASE("bytes: a reader returns what was written and is done") {
  const Bytes bytes = sample();
  ByteReader reader(bytes);
  CHECK(reader.get<std::uint8_t>() == 7);
  CHECK(reader.get<std::uint32_t>() == 0x01020304);
  CHECK(reader.get_text() == "abc");
  CHECK(reader.get<float>() == 1.5f);
  CHECK_FALSE(reader.done());
  CHECK(reader.remaining() == 2);
  const auto rest = reader.get_bytes(2);
  CHECK(Bytes(rest.begin(), rest.end()) == Bytes{9, 8});
  CHECK(reader.done());
}

TEST_CASE("bytes: past the end everything is zero and the reader stays bad") {
  const Bytes bytes = sample();
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    ByteReader reader(ByteView(bytes).first(n));
    reader.get<std::uint8_t>();
    reader.get<std::uint32_t>();
    reader.get_text();
    reader.get<float>();
    reader.get_bytes(2);
    CAPTURE(n);
    CHECK_FALSE(reader.good());
    CHECK_FALSE(reader.done());
    CHECK(reader.get<std::uint8_t>() == 0);  // although bytes may have been left
    CHECK(reader.remaining() == 0);
  }
}

TEST_CASE("bytes: a length that lies about what follows reads nothing") {
  ByteWriter writer;
  writer.put<std::uint32_t>(0xffffffff);
  writer.put<std::uint64_t>(1);
  const Bytes bytes = std::move(writer).take();
  ByteReader reader(bytes);
  CHECK(reader.get_sized().empty());
  CHECK_FALSE(reader.good());
  ByteReader text(bytes);
  CHECK(text.get_text().empty());
  CHECK_FALSE(text.good());
}

}  // namespace
}  // namespace starling
