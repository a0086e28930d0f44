#include "collectives/pack.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "core/base/ids.h"

namespace starling::collectives {
namespace {

constexpr std::int32_t kLowest = std::numeric_limits<std::int32_t>::min();

// Blocks whose elements need exactly so many bits.
std::vector<std::int32_t> block_of(std::uint32_t width, std::mt19937& random) {
  std::vector<std::int32_t> block(kBlock);
  if (width == 0) return block;
  for (auto& value : block) value = static_cast<std::int32_t>(random()) >> (32 - width);
  block[random() % kBlock] = kLowest >> (32 - width);
  return block;
}

TEST_CASE("pack: blocks of any width come back as they were, and take what their width says") {
  std::mt19937 random(1);
  std::vector<std::int32_t> all;
  std::size_t bytes = 0;
  for (std::uint32_t round = 0; round < 3; ++round)
    for (std::uint32_t width = 0; width <= 32; ++width) {
      const auto block = block_of(width, random);
      all.insert(all.end(), block.begin(), block.end());
      bytes += 1 + std::size_t{width} * kBlock / 8;
    }
  Bytes packed{7};  // appended to
  pack(all, packed);
  CHECK(packed.size() == 1 + bytes);
  std::vector<std::int32_t> back(all.size(), 3);
  ByteView from = ByteView(packed).subspan(1);
  REQUIRE(unpack(from, 32, back));
  CHECK(from.empty());
  CHECK(back == all);
}

TEST_CASE("pack: what is too wide, cut or follows another is no sum") {
  std::mt19937 random(2);
  for (const std::uint32_t width : {1u, 7u, 8u, 31u, 32u}) {
    CAPTURE(width);
    const auto block = block_of(width, random);
    Bytes packed;
    pack(block, packed);
    std::vector<std::int32_t> back(kBlock);
    ByteView from = packed;
    CHECK_FALSE(unpack(from, width - 1, back));
    for (std::size_t size = 0; size < packed.size(); ++size) {
      from = ByteView(packed).first(size);
      REQUIRE_FALSE(unpack(from, 32, back));
    }
    packed.push_back(9);
    from = packed;
    REQUIRE(unpack(from, width, back));
    CHECK(from.size() == 1);  // is left to the caller
    CHECK(back == block);
    packed[0] = 33;
    from = packed;
    CHECK_FALSE(unpack(from, 32, back));
  }
}

TEST_CASE("pack: a sum of so many integers of a grid has room in the width that is said") {
  for (const std::uint32_t bits : {4u, 8u, 15u, 24u})
    for (const std::uint64_t count : {1u, 2u, 3u, 8u, 100u}) {
      const std::uint32_t width = width_of_sums(bits, count);
      const std::int64_t largest = static_cast<std::int64_t>(count) * ((1 << (bits - 1)) - 1);
      CHECK(largest < std::int64_t{1} << (width - 1));
      CHECK(width <= 32);
    }
  CHECK(width_of_sums(8, 0) == 0);
  CHECK(width_of_sums(8, 1) == 8);
  CHECK(width_of_sums(8, 2) == 9);
  CHECK(width_of_sums(8, 9) == 12);
}

}  // namespace
}  // namespace starling::collectives
