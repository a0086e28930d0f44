#pragma once
// Elements are floats, or numbers of 16 bits as they lie in memory; here
// is what differs between these. All else is written once for each size.

#include <cuda_runtime.h>
#include <starling_ptx.h>

#include <cstdint>

#include "kernels/cuda/layers.h"
#include "kernels/device/element.h"

namespace starling::kernels::cuda {

// kPrecision: kBf16 or kFp16.
template <Precision kPrecision>
struct [[gnu::may_alias]] Half {
  std::uint16_t bits;
};
using Bf16 = Half<Precision::kBf16>;
using F16 = Half<Precision::kFp16>;

// Calls run.operator()<T>() with the type of elements.
template <class Run>
void with_element(Precision type, const Run& run) {
  if (type == Precision::kFp32) return run.template operator()<float>();
  if (type == Precision::kBf16) return run.template operator()<Bf16>();
  run.template operator()<F16>();
}

__device__ inline float widen(float value) {
  return value;
}
__device__ inline float widen(Bf16 value) {
  return from_bf16(value.bits);
}
__device__ inline float widen(F16 value) {
  return float_of_f16(value.bits);
}

// Rounds to the nearest, ties to even.
__device__ inline void narrow(float value, float& to) {
  to = value;
}
__device__ inline void narrow(float value, Bf16& to) {
  to.bits = kernels::to_bf16(value);
}
__device__ inline void narrow(float value, F16& to) {
  to.bits = static_cast<std::uint16_t>(pack_f16(value, 0));
}

// Packs two halves, the first one low; rounded as narrow() does, but a NaN may become another NaN.
template <class T>
__device__ std::uint32_t pack_two(float first, float second);
template <>
__device__ inline std::uint32_t pack_two<Bf16>(float first, float second) {
  return pack_bf16(first, second);
}
template <>
__device__ inline std::uint32_t pack_two<F16>(float first, float second) {
  return pack_f16(first, second);
}

// Multiplies on tensor cores (starling_ptx.h): d += a b.
template <class T>
__device__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
template <>
__device__ inline void mma<Bf16>(float (&d)[4], const std::uint32_t (&a)[4],
                                 const std::uint32_t (&b)[2]) {
  mma_bf16(d, a, b);
}
template <>
__device__ inline void mma<F16>(float (&d)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2]) {
  mma_f16(d, a, b);
}

}  // namespace starling::kernels::cuda
