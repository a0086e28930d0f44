#include <immintrin.h>

#include "kernels/cpu/gemm.h"

namespace starling::kernels {
namespace {

struct V16 {
  static constexpr std::size_t kLanes = 16;
  static constexpr int kTileRows = 12;
  __m512 v;

  static V16 zero() { return {_mm512_setzero_ps()}; }
  static V16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static V16 broadcast(const float* p) { return {_mm512_set1_ps(*p)}; }
  static V16 fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  friend V16 operator+(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }

  // out[k * step + r] = src[r * ld + k] for r < 16, zero for r >= rows.
  static void pack_transposed(const float* src, std::size_t ld, std::size_t rows, std::size_t kc,
                              float* out, std::size_t step) {
    std::size_t k = 0;
    if (rows >= 16) {
      for (; k + 4 <= kc; k += 4) {
        for (std::size_t r = 0; r < 16; r += 4)
          transpose4(src + r * ld + k, ld, out + k * step + r, step);
      }
    }
    for (; k < kc; ++k)
      for (std::size_t r = 0; r < 16; ++r) out[k * step + r] = r < rows ? src[r * ld + k] : 0.0f;
  }

  static void transpose4(const float* src, std::size_t ld, float* out, std::size_t step) {
    __m128 r0 = _mm_loadu_ps(src), r1 = _mm_loadu_ps(src + ld);
    __m128 r2 = _mm_loadu_ps(src + 2 * ld), r3 = _mm_loadu_ps(src + 3 * ld);
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_storeu_ps(out, r0);
    _mm_storeu_ps(out + step, r1);
    _mm_storeu_ps(out + 2 * step, r2);
    _mm_storeu_ps(out + 3 * step, r3);
  }
};

#include "kernels/cpu/gemm_core.inc"

}  // namespace

void gemm_avx512(const Gemm& g) {
  GemmCore<V16>::run(g);
}

}  // namespace starling::kernels
