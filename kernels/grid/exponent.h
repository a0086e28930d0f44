#pragma once
// These functions move the exponents of the grid, as functions of plain numbers (with
// checks in kernels/grid/quantise.h). A compiler for another processor reads this too.

#include <bit>
#include <cstdint>

#include "kernels/device/both.h"
#include "kernels/device/element.h"

namespace starling::kernels {

inline constexpr int kExponentMin = -140;
inline constexpr int kExponentMax = 100;
// Blocks of running statistics (core/job/groups.h) always have this one, so that their values go to the side list
// and are exact: channels of one block may be many orders of magnitude apart, and their variances stay from 0 on.
inline constexpr std::int16_t kStatisticsExponent = kExponentMin;
// An exponent falls by at most one bit in this many steps.
inline constexpr std::uint64_t kDecaySteps = 8;

// Returns the smallest exponent, clamped, with which `largest`
// is below 2^bits units. Requires 0 < largest < infinity.
STARLING_BOTH constexpr std::int16_t fitting(float largest, int bits) {
  const bool subnormal = std::bit_cast<std::uint32_t>(largest) < 0x800000u;
  const auto normal = std::bit_cast<std::uint32_t>(subnormal ? largest * 0x1p24f : largest);
  const int magnitude = static_cast<int>(normal >> 23) - (subnormal ? 150 : 126);
  const int exponent = magnitude - bits;  // largest < 2^magnitude
  const int clamped = exponent < kExponentMin   ? kExponentMin
                      : exponent > kExponentMax ? kExponentMax
                                                : exponent;
  return static_cast<std::int16_t>(clamped);
}

// This is next_exponent() of kernels/grid/quantise.h; limit_bits, headroom_bits are the Grid's.
STARLING_BOTH constexpr std::int16_t moved_exponent(int limit_bits, int headroom_bits,
                                                    std::int16_t exponent, float largest_mean,
                                                    float largest_side, std::uint64_t step) {
  const auto finite = [](float x) {
    return magnitude_bits(x) < kInfinityBits ? x : 0x1.fffffep127f;
  };
  if (largest_mean == 0 && largest_side == 0) return exponent;
  std::int16_t fit = kExponentMin;
  if (largest_mean != 0) fit = fitting(finite(largest_mean), limit_bits - headroom_bits);
  if (largest_side != 0) {
    const std::int16_t side = fitting(finite(largest_side), limit_bits);
    fit = side > fit ? side : fit;
  }
  if (fit >= exponent) return fit;
  const bool decays = step % kDecaySteps == kDecaySteps - 1;
  return decays ? static_cast<std::int16_t>(exponent - 1) : exponent;
}

}  // namespace starling::kernels
