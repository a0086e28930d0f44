#pragma once
// Types of elements as tests see them, on the host.

#include <cstdint>
#include <limits>

#include "kernels/cuda/layers.h"
#include "kernels/device/element.h"

namespace starling::kernels::cuda {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline constexpr Precision kTypes[] = {Precision::kFp32, Precision::kBf16, Precision::kFp16};
inline constexpr Precision kHalves[] = {Precision::kBf16, Precision::kFp16};

constexpr const char* text_of(Precision type) {
  return type == Precision::kFp32 ? "f32" : type == Precision::kBf16 ? "bf16" : "f16";
}
// Of kHalves.
constexpr std::uint16_t half_of(Precision type, float value) {
  return type == Precision::kBf16 ? kernels::to_bf16(value) : kernels::to_fp16(value);
}
constexpr float value_of(Precision type, std::uint16_t half) {
  return type == Precision::kBf16 ? from_bf16(half) : from_fp16(half);
}
// What remains of a value in an array of the type.
constexpr float kept(Precision type, float value) {
  return type == Precision::kFp32 ? value : value_of(type, half_of(type, value));
}

// A value is rounded to a neighbour half a unit of its last place away: by no more than rounding() of
// itself or, where it is small, than underflow().
constexpr double rounding(Precision type) {
  return type == Precision::kFp32 ? 0x1p-24 : type == Precision::kBf16 ? 0x1p-8 : 0x1p-11;
}
constexpr double underflow(Precision type) {
  return type == Precision::kFp16 ? 0x1p-25 : 0x1p-134;
}
constexpr float largest(Precision type) {
  return type == Precision::kFp16 ? 65504 : 3e38f;
}

}  // namespace starling::kernels::cuda
