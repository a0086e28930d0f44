#pragma once
// These functions turn a value of an array into another: gradients to integers of the grid,
// totals to means, fp32 to bf16 and fp16. A compiler for another processor reads this too.

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/base/precision.h"
#include "kernels/device/both.h"

namespace starling::kernels {

// Rounds to bfloat16, the upper half of an fp32: to the nearest, ties to even;
// a value above the largest finite one becomes infinity, a NaN stays one.
STARLING_BOTH constexpr std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((nan ? bits | 0x400000u : rounded) >> 16);
}
STARLING_BOTH constexpr float from_bf16(std::uint16_t half) {
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}
// Returns the fp32 with that value.
STARLING_BOTH constexpr float rounded_to_bf16(float value) {
  return from_bf16(to_bf16(value));
}

// Rounds to IEEE 754 binary16 by the same rules; its smallest magnitudes are subnormal.
STARLING_BOTH constexpr std::uint16_t to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 2^16
    half = 0x7c00u;
  } else if (magnitude <
             0x38800000u) {  // 2^-14: the sum with 1/2 is rounded to a multiple of 2^-24
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(sum) - 0x3f000000u;
  } else {
    half = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}
STARLING_BOTH constexpr float from_fp16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t exponent = half >> 10 & 0x1fu, significand = half & 0x3ffu;
  std::uint32_t magnitude = 0;
  if (exponent == 0)
    magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(significand) * 0x1p-24f);
  else
    magnitude = (exponent == 31 ? 0xffu : exponent + 112) << 23 | significand << 13;
  return std::bit_cast<float>(sign | magnitude);
}

// Converts to bf16 or fp16, and back.
STARLING_BOTH constexpr std::uint16_t to_half(float value, Precision precision) {
  return precision == Precision::kBf16 ? to_bf16(value) : to_fp16(value);
}
STARLING_BOTH constexpr float from_half(std::uint16_t half, Precision precision) {
  return precision == Precision::kBf16 ? from_bf16(half) : from_fp16(half);
}
// Returns the fp32 with the value of the rounded number, as working parameters are kept.
STARLING_BOTH constexpr float rounded(float value, Precision precision) {
  return precision == Precision::kFp32 ? value : from_half(to_half(value, precision), precision);
}

// Returns 2^-x as a float, for 0 <= x <= 126.
STARLING_BOTH constexpr float inverse_power_of_two(int x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 - x) << 23);
}

// Returns bits of a magnitude, in its order: NaN is above infinity, which is above finite values.
inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;
STARLING_BOTH constexpr std::uint32_t magnitude_bits(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
}

// GridScale is 2^-x as two factors that are floats: 2^140 is not one. Multiplying by `first`,
// then `second` is exact or overflows, except for results below 2^-126, whose q is 0 in any
// case. So rounding the float product gives the same q as rounding the product in double.
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

// Rounds to the nearest, half to even. Requires |x| < 2^31.
STARLING_BOTH inline std::int32_t to_nearest(float x) {
#ifdef __CUDA_ARCH__
  return __float2int_rn(x);
#else
  return static_cast<std::int32_t>(std::lrint(x));
#endif
}

// Writes q of a gradient g if |q| is below the limit, which is
// at most 2^30. Returns false else, as for NaN and infinity.
STARLING_BOTH inline bool quantise(float g, GridScale scale, std::int32_t limit, std::int32_t& q) {
  const float p = g * scale.first * scale.second;
  if (!(std::fabs(p) < 0x1p30f)) return false;  // also NaN
  q = to_nearest(p);
  return (q < 0 ? -q : q) < limit;
}

// Writes q of a gradient g, rounded up if its fraction and the dice (0 to 65535) together make 1, if |q| is below the limit,
// which is at most 2^14. Returns false else, as for NaN and infinity.
STARLING_BOTH inline bool quantise_by_dice(float g, GridScale scale, std::int32_t limit,
                                           std::uint32_t dice, std::int32_t& q) {
  const float p = g * scale.first * scale.second;
  if (!(std::fabs(p) < 0x1p14f)) return false;  // also NaN
  q = (to_nearest(p * 0x1p16f) + static_cast<std::int32_t>(dice)) >> 16;
  return (q < 0 ? -q : q) < limit;
}

// Returns 2^x, for any x for which that is a normal double.
STARLING_BOTH constexpr double power_of_two(int x) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(x + 1023) << 52);
}

// Returns fp32(total * scale / M), rounded once; scale is 2^x. The quotient of an int32
// and M <= 2^24 is rounded to double and then to float, which equals rounding once: were
// it within 2^-53 of the middle of two floats (25 significant bits H) without being it,
// then 0 < |T - H M| / (H M) < 2^-53 in suitable powers of two, but a non-zero integer T
// - H M is at least 1, and H M < 2^49. Multiplying by 2^x is exact in double.
STARLING_BOTH constexpr float mean_of(std::int32_t total, double scale, double micro_batches) {
  return static_cast<float>(total * scale / micro_batches);
}

}  // namespace starling::kernels
