#include <immintrin.h>

#include "kernels/cpu/gemm.h"

namespace starling::kernels {
namespace {

struct V8 {
  static constexpr std::size_t kLanes = 8;
  static constexpr int kTileRows = 6;
  __m256 v;

  static V8 zero() { return {_mm256_setzero_ps()}; }
  static V8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static V8 broadcast(const float* p) { return {_mm256_broadcast_ss(p)}; }
  static V8 fma(V8 a, V8 b, V8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  friend V8 operator+(V8 a, V8 b) { return {_mm256_add_ps(a.v, b.v)}; }

  // out[k * step + r] = src[r * ld + k] for r < 8, zero for r >= rows.
  static void pack_transposed(const float* src, std::size_t ld, std::size_t rows, std::size_t kc,
                              float* out, std::size_t step) {
    std::size_t k = 0;
    if (rows >= 8) {
      for (; k + 8 <= kc; k += 8) transpose8(src + k, ld, out + k * step, step);
    }
    for (; k < kc; ++k)
      for (std::size_t r = 0; r < 8; ++r) out[k * step + r] = r < rows ? src[r * ld + k] : 0.0f;
  }

  static void transpose8(const float* src, std::size_t ld, float* out, std::size_t step) {
    __m256 r[8], t[8];
    for (std::size_t i = 0; i < 4; ++i) {
      const float* p = src + i * ld;
      // Puts the low halves of rows i and i + 4 side by side, then the high halves.
      r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 4 * ld),
                                  1);
      r[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4)),
                                      _mm_loadu_ps(p + 4 * ld + 4), 1);
    }
    for (std::size_t h = 0; h < 8; h += 4) {
      t[h] = _mm256_unpacklo_ps(r[h], r[h + 1]);
      t[h + 1] = _mm256_unpackhi_ps(r[h], r[h + 1]);
      t[h + 2] = _mm256_unpacklo_ps(r[h + 2], r[h + 3]);
      t[h + 3] = _mm256_unpackhi_ps(r[h + 2], r[h + 3]);
      float* o = out + h * step;
      _mm256_storeu_ps(o, _mm256_shuffle_ps(t[h], t[h + 2], 0x44));
      _mm256_storeu_ps(o + step, _mm256_shuffle_ps(t[h], t[h + 2], 0xEE));
      _mm256_storeu_ps(o + 2 * step, _mm256_shuffle_ps(t[h + 1], t[h + 3], 0x44));
      _mm256_storeu_ps(o + 3 * step, _mm256_shuffle_ps(t[h + 1], t[h + 3], 0xEE));
    }
  }
};

#include "kernels/cpu/gemm_core.inc"

}  // namespace

void gemm_avx2(const Gemm& g) {
  GemmCore<V8>::run(g);
}

}  // namespace starling::kernels
