#pragma once
// How a value of an array is kept in fewer bytes. A compiler for another processor reads this too.

#include <bit>
#include <cstdint>

namespace starling::kernels {

// bfloat16: the upper half of an fp32. To the nearest, ties to even; what is larger than the largest
// finite one becomes infinity, a NaN stays one.
constexpr std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((nan ? bits | 0x400000u : rounded) >> 16);
}
constexpr float from_bf16(std::uint16_t half) {
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}
// The fp32 with that value.
constexpr float rounded_to_bf16(float value) {
  return from_bf16(to_bf16(value));
}

}  // namespace starling::kernels
