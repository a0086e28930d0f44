#pragma once
// This is tanh-form GELU (Hendrycks and Gimpel, 2016, "Gaussian Error Linear Units", section 2).

#include <cuda_runtime.h>

namespace starling::kernels::cuda {

// With z = sqrt(2 / pi) (u + 0.044715 u^3): (1 + tanh z) / 2 = 1 / (1 + exp(-2 z)).
inline __device__ float half_one_plus_tanh(float u) {
  const float z = 0.79788456f * (u + 0.044715f * u * u * u);
  return 1 / (1 + expf(-2 * z));
}
inline __device__ float gelu_of(float u) {
  return u * half_one_plus_tanh(u);
}
inline __device__ float gelu_slope(float u) {
  const float s = half_one_plus_tanh(u);
  const float dz = 0.79788456f * (1 + 3 * 0.044715f * u * u);
  return s + 2 * u * s * (1 - s) * dz;
}

}  // namespace starling::kernels::cuda
