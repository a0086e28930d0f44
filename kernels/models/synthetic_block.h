#pragma once
// This makes the gradient of one block of the synthetic model. It is compiled twice,
// once for AVX2, for the same bits: every operation is exact or rounds once. All is
// static here, since the linker could take another file's copy for the whole program.

namespace starling::kernels::synthetic {

inline constexpr unsigned kBlockElements = 256;

// Returns a value in [-1/2, 1/2): MurmurHash3's finaliser (Appleby) over a Weyl sequence.
[[maybe_unused]] static inline float half_noise(unsigned key, unsigned j) {
  unsigned x = key + j * 0x9E3779B9u;
  x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  x ^= x >> 16;
  return static_cast<float>(static_cast<int>(x)) * 0x1p-32f;
}

[[maybe_unused]] static inline float common(unsigned j) {
  return static_cast<float>(static_cast<int>(j)) * 0x1p-7f - 1.0f;
}

// Writes a block's gradient; `used` elements are real.
[[maybe_unused]] static void block_gradient(unsigned key, float scale, const float* __restrict w,
                                            float* __restrict gradient, unsigned used) {
  for (unsigned j = 0; j < kBlockElements; ++j)
    gradient[j] = scale * (common(j) + half_noise(key, j) + w[j] * 0x1p-4f);
  for (unsigned j = used; j < kBlockElements; ++j) gradient[j] = 0.0f;
}

// Returns null if not compiled in or this CPU has no AVX2.
void (*avx2_block_gradient())(unsigned key, float scale, const float* w, float* gradient,
                              unsigned used);

}  // namespace starling::kernels::synthetic
