#pragma once
// Counter-based random numbers: a function of (seed, purpose, step, micro-batch, index), never of
// worker or time. Philox4x32-10 (Salmon et al., SC 2011, "Parallel random numbers: as easy as
// 1, 2, 3", section 4).

#include <array>
#include <cstdint>

namespace starling {

// Purpose is what a random number is for; streams of different purposes are independent.
enum class Purpose : std::uint32_t {
  kInitialWeights = 1,
  kDataOrder = 2,
  kDropout = 3,
  kSyntheticData = 4,
  kSyntheticGradient = 5,
  kComputeTime = 6,
  kSampling = 7,
  kGridRounding = 8,
};

constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Four 32-bit numbers for (seed, purpose, step, micro-batch, index).
constexpr std::array<std::uint32_t, 4> random4(std::uint64_t seed, Purpose purpose,
                                               std::uint64_t step, std::uint32_t micro_batch,
                                               std::uint64_t index) {
  // 64 bits of index, 32 of step and 32 of (purpose, micro-batch) fill the counter; the step's
  // upper half is folded into the key, which no job of fewer than 2^32 steps reaches.
  return philox4x32(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
       static_cast<std::uint32_t>(step), (static_cast<std::uint32_t>(purpose) << 24) ^ micro_batch},
      {static_cast<std::uint32_t>(seed),
       static_cast<std::uint32_t>(seed >> 32) ^ static_cast<std::uint32_t>(step >> 32)});
}

// Uniform in (0, 1): the middle of one of 2^32 equal cells.
constexpr double uniform(std::uint32_t bits) {
  return (bits + 0.5) * 0x1p-32;
}

}  // namespace starling
