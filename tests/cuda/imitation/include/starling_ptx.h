#pragma once
// Instructions of tensor cores and asynchronous copies, imitated: same names and same layouts of registers
// as in kernels/cuda/device_include/starling_ptx.h.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/device/element.h"
#include "tests/cuda/imitation/tensor.h"

namespace starling::kernels::cuda {

inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  imitation::mma_bf16(d, a, b);
}

inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  imitation::mma_f16(d, a, b);
}

inline std::uint32_t pack_bf16(float first, float second) {
  return kernels::to_bf16(first) | static_cast<std::uint32_t>(kernels::to_bf16(second)) << 16;
}
inline std::uint32_t pack_f16(float first, float second) {
  return kernels::to_fp16(first) | static_cast<std::uint32_t>(kernels::to_fp16(second)) << 16;
}
inline float float_of_f16(std::uint16_t half) {
  return kernels::from_fp16(half);
}

inline float exp2_of_normal(float x) {
  const float value = std::exp2(x);
  return value < 0x1p-126f ? 0 : value;
}

inline void load_matrix_x4(std::uint32_t (&r)[4], const void* shared) {
  imitation::load_matrix_x4(r, shared, /*transposed=*/false);
}
inline void load_matrix_x4_transposed(std::uint32_t (&r)[4], const void* shared) {
  imitation::load_matrix_x4(r, shared, /*transposed=*/true);
}

inline void copy_async_16(void* shared, const void* global) {
  imitation::copy_async_16(shared, global);
}
inline void copy_async_commit() {
  imitation::close_copies();
}
template <int kLeft>
void copy_async_wait() {
  static_assert(kLeft >= 0);
  imitation::finish_copies(kLeft);
}

}  // namespace starling::kernels::cuda
