#pragma once
// How a value of an array becomes another: gradients to integers of the grid, totals to means, fp32 to
// bf16. A compiler for another processor reads this too.

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/device/both.h"

namespace starling::kernels {

// bfloat16: the upper half of an fp32. To the nearest, ties to even; what is larger than the largest
// finite one becomes infinity, a NaN stays one.
STARLING_BOTH constexpr std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((nan ? bits | 0x400000u : rounded) >> 16);
}
STARLING_BOTH constexpr float from_bf16(std::uint16_t half) {
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}
// The fp32 with that value.
STARLING_BOTH constexpr float rounded_to_bf16(float value) {
  return from_bf16(to_bf16(value));
}

// Bits of a magnitude: they ascend with it, NaN is above infinity, which is above what is finite.
inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;
STARLING_BOTH constexpr std::uint32_t magnitude_bits(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
}

// 2^-x as two factors that are floats of their own: 2^140 is not one. Multiplying by `first`, then
// `second` is exact or overflows, except for results below 2^-126, whose q is 0 in any case. So
// rounding the float product gives the same q as rounding the product in double.
struct GridScale {
  float first = 1, second = 1;
};
// Requires an exponent of the grid (kernels/grid/exponent.h).
STARLING_BOTH constexpr GridScale scale_of(std::int16_t exponent) {
  const int power = -exponent;
  const int first = power < 127 ? power : 127;
  return {std::bit_cast<float>(static_cast<std::uint32_t>(first + 127) << 23),
          std::bit_cast<float>(static_cast<std::uint32_t>(power - first + 127) << 23)};
}

// Requires |x| < 2^31. Half to even.
STARLING_BOTH inline std::int32_t to_nearest(float x) {
#ifdef __CUDA_ARCH__
  return __float2int_rn(x);
#else
  return static_cast<std::int32_t>(std::lrint(x));
#endif
}

// Writes q of a gradient g if |q| is below the limit, which is at most 2^30; else, as for NaN and
// infinity, false.
STARLING_BOTH inline bool quantise(float g, GridScale scale, std::int32_t limit, std::int32_t& q) {
  const float p = g * scale.first * scale.second;
  if (!(std::fabs(p) < 0x1p30f)) return false;  // also NaN
  q = to_nearest(p);
  return (q < 0 ? -q : q) < limit;
}

// 2^x, for any x of which that is a normal double.
STARLING_BOTH constexpr double power_of_two(int x) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(x + 1023) << 52);
}

// fp32(total * scale / M), rounded once; scale is 2^x. The quotient of an int32 and an M <= 2^24 is
// rounded to double and then to float, which is the same as rounding once: were it within 2^-53 of the
// middle of two floats (25 significant bits H) without being it, then 0 < |T - H M| / (H M) < 2^-53 in
// suitable powers of two, but a non-zero integer T - H M is at least 1, and H M < 2^49. Multiplying by
// 2^x is exact in double.
STARLING_BOTH constexpr float mean_of(std::int32_t total, double scale, double micro_batches) {
  return static_cast<float>(total * scale / micro_batches);
}

}  // namespace starling::kernels
