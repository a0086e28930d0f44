// This file has all kernels but matrix products for CPUs with AVX2 and FMA.
// The AVX-512 table uses them as well, so that both have the same bits.
//
// A row's sums are kept in 8 lanes and folded in one fixed order;
// the rest of a row after whole vectors is one vector under a mask.

#include <immintrin.h>

#include "kernels/cpu/portable_math.h"
#include "kernels/cpu/vector.h"

namespace starling::kernels {
namespace {

using F = __m256;
constexpr std::size_t kLanes = 8;

F all(float x) {
  return _mm256_set1_ps(x);
}
F zero() {
  return _mm256_setzero_ps();
}
F load(const float* p) {
  return _mm256_loadu_ps(p);
}
F fma(F a, F b, F c) {
  return _mm256_fmadd_ps(a, b, c);
}
F add(F a, F b) {
  return _mm256_add_ps(a, b);
}
F sub(F a, F b) {
  return _mm256_sub_ps(a, b);
}
F mul(F a, F b) {
  return _mm256_mul_ps(a, b);
}

// Masks the first n lanes, n < 8.
__m256i mask_of(std::size_t n) {
  alignas(32) static constexpr std::int32_t kMask[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask + kLanes - n));
}

float fold(F x) {
  const __m128 h = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 q = _mm_add_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

float fold_max(F x) {
  const __m128 h = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 q = _mm_max_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

// Computes e^x within 2 ulp; below -87.3 it stays at exp(-87.3), about 1e-38. NaN
// stays NaN: min and max give their second operand then. Polynomial of Cephes' expf.
F exp(F x) {
  x = _mm256_max_ps(all(-87.3f), _mm256_min_ps(all(88.3f), x));
  const F n =
      _mm256_round_ps(mul(x, all(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  F r = _mm256_fnmadd_ps(n, all(0.693359375f), x);
  r = _mm256_fnmadd_ps(n, all(-2.12194440e-4f), r);
  F y = all(1.9875691500e-4f);
  y = fma(y, r, all(1.3981999507e-3f));
  y = fma(y, r, all(8.3334519073e-3f));
  y = fma(y, r, all(4.1665795894e-2f));
  y = fma(y, r, all(1.6666665459e-1f));
  y = fma(y, r, all(5.0000001201e-1f));
  y = fma(y, mul(r, r), add(r, all(1.0f)));
  const __m256i e = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), e));
}

// A body reads and writes a vector whole or under a mask. Lanes past the end read as `fill`.
struct Whole {
  F operator()(const float* p, float = 0) const { return load(p); }
  void store(float* p, F x) const { _mm256_storeu_ps(p, x); }
  F keep(F x) const { return x; }
};
struct Part {
  __m256i mask;
  F operator()(const float* p, float fill = 0) const {
    return _mm256_blendv_ps(all(fill), _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
  }
  void store(float* p, F x) const { _mm256_maskstore_ps(p, mask, x); }
  F keep(F x) const { return _mm256_and_ps(x, _mm256_castsi256_ps(mask)); }
};

// Calls body(offset, io) for whole vectors, then once under a mask for the rest.
template <class Body>
inline __attribute__((always_inline)) void each(std::size_t n, Body&& body) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{});
  if (i < n) body(i, Part{mask_of(n - i)});
}

void layer_norm(NormShape shape, const float* x, const float* gain, const float* bias, float* y,
                float* mean, float* rstd) {
  const std::size_t w = shape.width;
  const float share = 1.0f / static_cast<float>(w);
  for (std::size_t r = 0; r < shape.rows; ++r, x += w, y += w) {
    F sums = zero();
    each(w, [&](std::size_t i, auto io) { sums = add(sums, io(x + i)); });
    const F m = all(fold(sums) * share);
    F squares = zero();
    each(w, [&](std::size_t i, auto io) {
      const F d = io.keep(sub(io(x + i), m));
      squares = fma(d, d, squares);
    });
    const float s = 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(fold(squares) * share + 1e-5f)));
    each(w, [&](std::size_t i, auto io) {
      const F n = mul(sub(io(x + i), m), all(s));
      io.store(y + i, fma(n, io(gain + i), io(bias + i)));
    });
    mean[r] = _mm256_cvtss_f32(m);
    rstd[r] = s;
  }
}

// Makes gradients of gain and bias, one vector of columns at a time, in partial
// sums of 32 rows: a single chain over thousands of rows would lose a digit.
constexpr std::size_t kPartialRows = 32;

void layer_norm_parameters(NormShape shape, const float* x, const float* mean, const float* rstd,
                           const float* dy, float* dgain, float* dbias) {
  const std::size_t w = shape.width;
  each(w, [&](std::size_t i, auto io) {
    F gains = zero(), biases = zero();
    for (std::size_t first = 0; first < shape.rows; first += kPartialRows) {
      const std::size_t end = first + kPartialRows < shape.rows ? first + kPartialRows : shape.rows;
      F g = zero(), b = zero();
      for (std::size_t r = first; r < end; ++r) {
        const F d = io(dy + r * w + i);
        const F n = mul(sub(io(x + r * w + i), all(mean[r])), all(rstd[r]));
        g = fma(d, n, g);
        b = add(b, d);
      }
      gains = add(gains, g);
      biases = add(biases, b);
    }
    io.store(dgain + i, gains);
    io.store(dbias + i, biases);
  });
}

void layer_norm_backward(NormShape shape, const float* x, const float* gain, const float* mean,
                         const float* rstd, const float* dy, const float* plus, float* dx,
                         float* dgain, float* dbias) {
  layer_norm_parameters(shape, x, mean, rstd, dy, dgain, dbias);
  const std::size_t w = shape.width;
  const float share = 1.0f / static_cast<float>(w);
  for (std::size_t r = 0; r < shape.rows; ++r, x += w, dy += w, dx += w) {
    const F m = all(mean[r]), s = all(rstd[r]);
    F sums = zero(), along = zero();
    each(w, [&](std::size_t i, auto io) {
      const F d = mul(io(dy + i), io(gain + i));
      sums = add(sums, d);
      along = fma(d, mul(sub(io(x + i), m), s), along);
    });
    const F a = all(fold(sums) * share), b = all(fold(along) * share);
    each(w, [&](std::size_t i, auto io) {
      const F d = mul(io(dy + i), io(gain + i));
      const F n = mul(sub(io(x + i), m), s);
      io.store(dx + i,
               fma(s, _mm256_fnmadd_ps(n, b, sub(d, a)), plus ? io(plus + r * w + i) : zero()));
    });
  }
}

void rms_norm(NormShape shape, float epsilon, const float* x, const float* gain, float* y,
              float* rstd) {
  const std::size_t w = shape.width;
  const float share = 1.0f / static_cast<float>(w);
  for (std::size_t r = 0; r < shape.rows; ++r, x += w, y += w) {
    F squares = zero();
    each(w, [&](std::size_t i, auto io) {
      const F v = io(x + i);
      squares = fma(v, v, squares);
    });
    const float s = 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(fold(squares) * share + epsilon)));
    each(w, [&](std::size_t i, auto io) {
      io.store(y + i, mul(mul(io(x + i), all(s)), io(gain + i)));
    });
    rstd[r] = s;
  }
}

void rms_norm_gains(NormShape shape, const float* x, const float* rstd, const float* dy,
                    float* dgain) {
  const std::size_t w = shape.width;
  each(w, [&](std::size_t i, auto io) {
    F gains = zero();
    for (std::size_t first = 0; first < shape.rows; first += kPartialRows) {
      const std::size_t end = first + kPartialRows < shape.rows ? first + kPartialRows : shape.rows;
      F g = zero();
      for (std::size_t r = first; r < end; ++r)
        g = fma(io(dy + r * w + i), mul(io(x + r * w + i), all(rstd[r])), g);
      gains = add(gains, g);
    }
    io.store(dgain + i, gains);
  });
}

void rms_norm_backward(NormShape shape, const float* x, const float* gain, const float* rstd,
                       const float* dy, const float* plus, float* dx, float* dgain) {
  rms_norm_gains(shape, x, rstd, dy, dgain);
  const std::size_t w = shape.width;
  const float share = 1.0f / static_cast<float>(w);
  for (std::size_t r = 0; r < shape.rows; ++r, x += w, dy += w, dx += w) {
    const F s = all(rstd[r]);
    F along = zero();
    each(w, [&](std::size_t i, auto io) {
      along = fma(mul(io(dy + i), io(gain + i)), mul(io(x + i), s), along);
    });
    const F b = all(fold(along) * share);
    each(w, [&](std::size_t i, auto io) {
      const F d = mul(io(dy + i), io(gain + i));
      const F n = mul(io(x + i), s);
      io.store(dx + i, fma(s, _mm256_fnmadd_ps(n, b, d), plus ? io(plus + r * w + i) : zero()));
    });
  }
}

// GELU(u) = u / (1 + e), e = exp(-2 z), 2 z = u (kLinear + kCubic u^2).
constexpr float kLinear = 1.5957691216057308f;
constexpr float kCubic = 0.071354816272093f;

F gelu_exponential(F u) {
  const F slope = fma(mul(u, u), all(kCubic), all(kLinear));
  return exp(sub(zero(), mul(u, slope)));
}

void gelu(std::size_t n, const float* u, float* g) {
  each(n, [&](std::size_t i, auto io) {
    const F x = io(u + i);
    io.store(g + i, _mm256_div_ps(x, add(all(1.0f), gelu_exponential(x))));
  });
}

void gelu_backward(std::size_t n, const float* u, float* dg_du, float* g) {
  each(n, [&](std::size_t i, auto io) {
    const F x = io(u + i), e = gelu_exponential(x);
    const F s = _mm256_div_ps(all(1.0f), add(all(1.0f), e));
    const F xs = mul(x, s);
    const F dz = fma(mul(x, x), all(3 * kCubic), all(kLinear));
    // d(u s)/du = s + u s (1 - s) 2z', and 1 - s = e s without cancellation.
    const F slope = fma(mul(xs, mul(e, s)), dz, s);
    io.store(g + i, xs);
    io.store(dg_du + i, mul(io(dg_du + i), slope));
  });
}

void swiglu(std::size_t n, const float* gate, const float* up, float* y) {
  each(n, [&](std::size_t i, auto io) {
    const F g = io(gate + i), e = exp(sub(zero(), g));
    io.store(y + i, mul(_mm256_div_ps(g, add(all(1.0f), e)), io(up + i)));
  });
}

void swiglu_backward(std::size_t n, const float* gate, const float* up, const float* dy,
                     float* dgate, float* dup, float* y) {
  each(n, [&](std::size_t i, auto io) {
    const F g = io(gate + i), u = io(up + i), d = io(dy + i), e = exp(sub(zero(), g));
    const F s = _mm256_div_ps(all(1.0f), add(all(1.0f), e));
    const F gs = mul(g, s);
    // d(g s)/dg = s + g s (1 - s), and 1 - s = e s without cancellation.
    const F slope = fma(gs, mul(e, s), s);
    io.store(y + i, mul(gs, u));
    io.store(dgate + i, mul(mul(d, u), slope));
    io.store(dup + i, mul(d, gs));
  });
}

void rotate(std::size_t n, const float* cosines, const float* sines, bool back, float* x) {
  each(n, [&](std::size_t i, auto io) {
    const F a = io(x + i), b = io(x + n + i), c = io(cosines + i);
    const F s = back ? sub(zero(), io(sines + i)) : io(sines + i);
    io.store(x + i, _mm256_fnmadd_ps(b, s, mul(a, c)));
    io.store(x + n + i, fma(a, s, mul(b, c)));
  });
}

void relu(std::size_t n, float* y) {
  // _mm256_max_ps gives its second operand if one is NaN.
  each(n, [&](std::size_t i, auto io) { io.store(y + i, _mm256_max_ps(zero(), io(y + i))); });
}

void relu_backward(std::size_t n, const float* y, float* dy) {
  each(n, [&](std::size_t i, auto io) {
    const F on = _mm256_cmp_ps(io(y + i), zero(), _CMP_GT_OQ);
    io.store(dy + i, _mm256_and_ps(on, io(dy + i)));
  });
}

float row_max(std::size_t n, const float* x) {
  F top = all(-HUGE_VALF);
  each(n, [&](std::size_t i, auto io) { top = _mm256_max_ps(top, io(x + i, -HUGE_VALF)); });
  return fold_max(top);
}

void fill_zero(float* from, float* end) {
  for (; from < end; ++from) *from = 0;
}

void softmax_causal(const CausalShape& shape, float scale, float* s, std::size_t ld) {
  for (std::size_t row = 0; row < shape.rows; ++row, s += ld) {
    const std::size_t first = shape.first(row), n = shape.end(row) - first;
    float* const seen = s + first;
    const F top = all(row_max(n, seen));
    F sums = zero();
    each(n, [&](std::size_t i, auto io) {
      const F e = exp(mul(all(scale), sub(io(seen + i), top)));
      io.store(seen + i, e);
      sums = add(sums, io.keep(e));
    });
    const F share = all(1.0f / fold(sums));
    each(n, [&](std::size_t i, auto io) { io.store(seen + i, mul(io(seen + i), share)); });
    fill_zero(s, seen);
    fill_zero(seen + n, s + shape.columns);
  }
}

void softmax_causal_backward(const CausalShape& shape, float scale, const float* p, float* dp_ds,
                             std::size_t ld) {
  for (std::size_t row = 0; row < shape.rows; ++row, p += ld, dp_ds += ld) {
    const std::size_t first = shape.first(row), n = shape.end(row) - first;
    const float* const of = p + first;
    float* const seen = dp_ds + first;
    F sums = zero();
    each(n, [&](std::size_t i, auto io) { sums = fma(io(of + i), io(seen + i), sums); });
    const F mean = all(fold(sums));
    each(n, [&](std::size_t i, auto io) {
      io.store(seen + i, mul(all(scale), mul(io(of + i), sub(io(seen + i), mean))));
    });
    fill_zero(dp_ds, seen);
    fill_zero(seen + n, dp_ds + shape.columns);
  }
}

double cross_entropy(std::size_t rows, std::size_t classes, float* logits,
                     const std::int32_t* targets, bool gradient, float scale) {
  double loss = 0;
  for (std::size_t r = 0; r < rows; ++r, logits += classes) {
    const float top = row_max(classes, logits);
    const float wanted = logits[targets[r]];
    F sums = zero();
    each(classes, [&](std::size_t i, auto io) {
      const F e = exp(sub(io(logits + i), all(top)));
      if (gradient) io.store(logits + i, e);
      sums = add(sums, io.keep(e));
    });
    const float sum = fold(sums);
    loss += portable_log(sum) + top - wanted;
    if (!gradient) continue;
    const F share = all(scale / sum);
    each(classes,
         [&](std::size_t i, auto io) { io.store(logits + i, mul(io(logits + i), share)); });
    logits[targets[r]] -= scale;
  }
  return loss;
}

void column_sums(std::size_t rows, std::size_t n, const float* x, float* sums) {
  each(n, [&](std::size_t i, auto io) {
    F total = zero();
    for (std::size_t first = 0; first < rows; first += kPartialRows) {
      const std::size_t end = first + kPartialRows < rows ? first + kPartialRows : rows;
      F part = zero();
      for (std::size_t r = first; r < end; ++r) part = add(part, io(x + r * n + i));
      total = add(total, part);
    }
    io.store(sums + i, total);
  });
}

void sum(std::size_t n, const float* a, const float* b, float* y) {
  each(n, [&](std::size_t i, auto io) { io.store(y + i, add(io(a + i), io(b + i))); });
}

}  // namespace

KernelTable vector_kernels_avx2(const char* isa, void (*gemm)(const Gemm&)) {
  return {isa,
          gemm,
          layer_norm,
          layer_norm_backward,
          rms_norm,
          rms_norm_backward,
          gelu,
          gelu_backward,
          swiglu,
          swiglu_backward,
          rotate,
          relu,
          relu_backward,
          softmax_causal,
          softmax_causal_backward,
          cross_entropy,
          column_sums,
          sum};
}

}  // namespace starling::kernels
