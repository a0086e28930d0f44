#pragma once
// GridDice are the random numbers with which elements of a gradient are rounded up or down: a function of (seed, step,
// micro-batch, use of the part, element), so the same wherever the micro-batch is computed.
//
// Element e of a block is rounded with 16 bits of word e % 4 of call e / 4 % 32, the lower ones in the block's first half
// and the upper ones in its second; a block has 32 calls. (So a lane of a GPU's warp needs one call for its elements.)

#include <array>
#include <cstdint>

#include "core/base/ids.h"
#include "core/base/philox.h"

namespace starling {

struct GridDice {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t micro_batch = 0;
  std::uint32_t use = 0;

  static constexpr std::uint32_t kCalls = 32;  // of a block

  std::array<std::uint32_t, 4> call(std::uint32_t block, std::uint32_t i) const {
    return random4(seed, Purpose::kGridRounding, step, micro_batch, index(block) + i);
  }
  // Index of the block's first call.
  std::uint64_t index(std::uint32_t block) const {
    return (std::uint64_t{use} << 40) + std::uint64_t{block} * kCalls;
  }
  // 0 to 65535.
  static constexpr std::uint32_t bits_of(const std::array<std::uint32_t, 4>& call,
                                         std::uint32_t element) {
    return call[element % 4] >> (element < kBlock / 2 ? 0 : 16) & 0xffff;
  }
};

}  // namespace starling
