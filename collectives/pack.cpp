#include "collectives/pack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/base/check.h"
#include "core/base/ids.h"

namespace starling::collectives {
namespace {

constexpr std::uint32_t kLanes = 8, kEach = kBlock / kLanes, kWidthMax = 32;
static_assert(kEach == 32);  // elements of a lane: as many words as an element has bits

using Words = std::array<std::uint32_t, std::size_t{kWidthMax} * kLanes>;  // of one block

constexpr std::size_t bytes_of(std::uint32_t width) {
  return std::size_t{width} * kLanes * sizeof(std::uint32_t);
}
constexpr std::uint32_t mask_of(std::uint32_t width) {
  return width == kWidthMax ? ~0u : (1u << width) - 1;
}

std::uint32_t width_of(const std::int32_t* block) {
  std::uint32_t any = 0, magnitude = 0;
  for (std::uint32_t i = 0; i < kBlock; ++i) {
    any |= static_cast<std::uint32_t>(block[i]);
    magnitude |= static_cast<std::uint32_t>(block[i] ^ (block[i] >> 31));
  }
  return any == 0 ? 0 : static_cast<std::uint32_t>(std::bit_width(magnitude)) + 1;
}

void pack_block(const std::int32_t* block, std::uint32_t width, Words& words) {
  words.fill(0);
  const std::uint32_t mask = mask_of(width);
  for (std::uint32_t k = 0; k < kEach; ++k) {
    const std::uint32_t word = k * width / 32, shift = k * width % 32;
    std::uint32_t* const low = words.data() + std::size_t{word} * kLanes;
    const std::int32_t* const values = block + std::size_t{k} * kLanes;
    for (std::uint32_t l = 0; l < kLanes; ++l)
      low[l] |= (static_cast<std::uint32_t>(values[l]) & mask) << shift;
    if (shift + width <= 32) continue;
    for (std::uint32_t l = 0; l < kLanes; ++l)
      low[kLanes + l] |= (static_cast<std::uint32_t>(values[l]) & mask) >> (32 - shift);
  }
}

void unpack_block(const Words& words, std::uint32_t width, std::int32_t* block) {
  const std::uint32_t mask = mask_of(width), sign = 1u << (width - 1);
  for (std::uint32_t k = 0; k < kEach; ++k) {
    const std::uint32_t word = k * width / 32, shift = k * width % 32;
    const std::uint32_t* const low = words.data() + std::size_t{word} * kLanes;
    std::int32_t* const values = block + std::size_t{k} * kLanes;
    std::array<std::uint32_t, kLanes> bits;
    for (std::uint32_t l = 0; l < kLanes; ++l) bits[l] = low[l] >> shift;
    if (shift + width > 32)
      for (std::uint32_t l = 0; l < kLanes; ++l) bits[l] |= low[kLanes + l] << (32 - shift);
    for (std::uint32_t l = 0; l < kLanes; ++l)
      values[l] = static_cast<std::int32_t>(((bits[l] & mask) ^ sign) - sign);
  }
}

}  // namespace

void pack(std::span<const std::int32_t> sums, Bytes& to) {
  STARLING_CHECK(sums.size() % kBlock == 0);
  const std::size_t blocks = sums.size() / kBlock, begin = to.size();
  to.resize(begin + blocks);
  std::size_t bytes = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::uint32_t width = width_of(sums.data() + b * kBlock);
    to[begin + b] = static_cast<std::uint8_t>(width);
    bytes += bytes_of(width);
  }
  to.resize(to.size() + bytes);
  std::uint8_t* at = to.data() + begin + blocks;
  Words words;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::uint32_t width = to[begin + b];
    if (width == 0) continue;
    pack_block(sums.data() + b * kBlock, width, words);
    std::memcpy(at, words.data(), bytes_of(width));
    at += bytes_of(width);
  }
}

bool unpack(ByteView& from, std::uint32_t width_max, std::span<std::int32_t> sums) {
  STARLING_CHECK(sums.size() % kBlock == 0);
  STARLING_CHECK(width_max <= kWidthMax);
  const std::size_t blocks = sums.size() / kBlock;
  if (from.size() < blocks) return false;
  const ByteView widths = from.first(blocks);
  from = from.subspan(blocks);
  Words words;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::uint32_t width = widths[b];
    std::int32_t* const block = sums.data() + b * kBlock;
    if (width > width_max || from.size() < bytes_of(width)) return false;
    if (width == 0) {
      std::fill_n(block, kBlock, 0);
      continue;
    }
    std::memcpy(words.data(), from.data(), bytes_of(width));
    from = from.subspan(bytes_of(width));
    unpack_block(words, width, block);
  }
  return true;
}

std::uint32_t width_of_sums(std::uint32_t bits, std::uint64_t count) {
  if (count == 0) return 0;
  return std::min<std::uint32_t>(bits + static_cast<std::uint32_t>(std::bit_width(count - 1)),
                                 kWidthMax);
}

}  // namespace starling::collectives
