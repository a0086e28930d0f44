// These kernels follow the formulae, with sums in double: slow, and the measure of the others.

#include <algorithm>
#include <cmath>

#include "kernels/cpu/portable_math.h"
#include "kernels/cpu/table.h"

namespace starling::kernels {
namespace {

constexpr double kRootTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

void gemm(const Gemm& g) {
  for (std::size_t i = 0; i < g.m; ++i) {
    const std::size_t columns = g.trim == Trim::kLowerC ? std::min(g.n, i + 1) : g.n;
    const std::size_t from = g.trim == Trim::kUpperA ? std::min(g.k, i) : 0;
    const std::size_t to = g.trim == Trim::kLowerA ? std::min(g.k, i + 1) : g.k;
    for (std::size_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::size_t k = from; k < to; ++k) {
        const double a = g.a_transposed ? g.a[k * g.lda + i] : g.a[i * g.lda + k];
        sum += a * (g.b_transposed ? g.b[j * g.ldb + k] : g.b[k * g.ldb + j]);
      }
      if (g.bias) sum += g.bias[j];
      if (g.add) sum += g.add[i * g.ldadd + j];
      g.c[i * g.ldc + j] = static_cast<float>(sum);
    }
  }
}

void layer_norm(NormShape shape, const float* x, const float* gain, const float* bias, float* y,
                float* mean, float* rstd) {
  const auto width = static_cast<double>(shape.width);
  for (std::size_t r = 0; r < shape.rows; ++r, x += shape.width, y += shape.width) {
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < shape.width; ++i) sum += x[i];
    const double m = sum / width;
    for (std::size_t i = 0; i < shape.width; ++i) squares += (x[i] - m) * (x[i] - m);
    const double s = 1 / std::sqrt(squares / width + 1e-5);
    for (std::size_t i = 0; i < shape.width; ++i)
      y[i] = static_cast<float>((x[i] - m) * s * gain[i] + bias[i]);
    mean[r] = static_cast<float>(m);
    rstd[r] = static_cast<float>(s);
  }
}

void layer_norm_backward(NormShape shape, const float* x, const float* gain, const float* mean,
                         const float* rstd, const float* dy, const float* add, float* dx,
                         float* dgain, float* dbias) {
  const std::size_t w = shape.width;
  const auto normed = [&](std::size_t r, std::size_t i) {
    return (static_cast<double>(x[r * w + i]) - mean[r]) * rstd[r];
  };
  for (std::size_t i = 0; i < w; ++i) {
    double to_gain = 0, to_bias = 0;
    for (std::size_t r = 0; r < shape.rows; ++r) {
      to_gain += dy[r * w + i] * normed(r, i);
      to_bias += dy[r * w + i];
    }
    dgain[i] = static_cast<float>(to_gain);
    dbias[i] = static_cast<float>(to_bias);
  }
  for (std::size_t r = 0; r < shape.rows; ++r) {
    double sum = 0, along = 0;
    for (std::size_t i = 0; i < w; ++i) {
      const double d = static_cast<double>(dy[r * w + i]) * gain[i];
      sum += d;
      along += d * normed(r, i);
    }
    sum /= static_cast<double>(w);
    along /= static_cast<double>(w);
    for (std::size_t i = 0; i < w; ++i) {
      const double d = static_cast<double>(dy[r * w + i]) * gain[i];
      const double plus = add ? add[r * w + i] : 0;
      dx[r * w + i] = static_cast<float>(plus + rstd[r] * (d - sum - normed(r, i) * along));
    }
  }
}

void rms_norm(NormShape shape, float epsilon, const float* x, const float* gain, float* y,
              float* rstd) {
  for (std::size_t r = 0; r < shape.rows; ++r, x += shape.width, y += shape.width) {
    double squares = 0;
    for (std::size_t i = 0; i < shape.width; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double s = 1 / std::sqrt(squares / static_cast<double>(shape.width) + epsilon);
    for (std::size_t i = 0; i < shape.width; ++i) y[i] = static_cast<float>(x[i] * s * gain[i]);
    rstd[r] = static_cast<float>(s);
  }
}

void rms_norm_backward(NormShape shape, const float* x, const float* gain, const float* rstd,
                       const float* dy, const float* add, float* dx, float* dgain) {
  const std::size_t w = shape.width;
  const auto normed = [&](std::size_t r, std::size_t i) {
    return static_cast<double>(x[r * w + i]) * rstd[r];
  };
  for (std::size_t i = 0; i < w; ++i) {
    double to_gain = 0;
    for (std::size_t r = 0; r < shape.rows; ++r) to_gain += dy[r * w + i] * normed(r, i);
    dgain[i] = static_cast<float>(to_gain);
  }
  for (std::size_t r = 0; r < shape.rows; ++r) {
    double along = 0;
    for (std::size_t i = 0; i < w; ++i)
      along += static_cast<double>(dy[r * w + i]) * gain[i] * normed(r, i);
    along /= static_cast<double>(w);
    for (std::size_t i = 0; i < w; ++i) {
      const double d = static_cast<double>(dy[r * w + i]) * gain[i];
      const double plus = add ? add[r * w + i] : 0;
      dx[r * w + i] = static_cast<float>(plus + rstd[r] * (d - normed(r, i) * along));
    }
  }
}

// 1 / (1 + exp(-2 z)) = (1 + tanh z) / 2 with z as in the tanh form of GELU.
double half_one_plus_tanh(double u) {
  const double z = kRootTwoOverPi * (u + kCubic * u * u * u);
  return 1 / (1 + portable_exp(-2 * z));
}

void gelu(std::size_t n, const float* u, float* g) {
  for (std::size_t i = 0; i < n; ++i) g[i] = static_cast<float>(u[i] * half_one_plus_tanh(u[i]));
}

void gelu_backward(std::size_t n, const float* u, float* dg_du, float* g) {
  for (std::size_t i = 0; i < n; ++i) {
    const double x = u[i], s = half_one_plus_tanh(x);
    const double dz = kRootTwoOverPi * (1 + 3 * kCubic * x * x);
    g[i] = static_cast<float>(x * s);
    dg_du[i] = static_cast<float>(dg_du[i] * (s + 2 * x * s * (1 - s) * dz));
  }
}

void swiglu(std::size_t n, const float* gate, const float* up, float* y) {
  for (std::size_t i = 0; i < n; ++i) {
    const double g = gate[i];
    y[i] = static_cast<float>(g / (1 + portable_exp(-g)) * up[i]);
  }
}

void swiglu_backward(std::size_t n, const float* gate, const float* up, const float* dy,
                     float* dgate, float* dup, float* y) {
  for (std::size_t i = 0; i < n; ++i) {
    const double g = gate[i], u = up[i], d = dy[i], s = 1 / (1 + portable_exp(-g));
    y[i] = static_cast<float>(g * s * u);
    dgate[i] = static_cast<float>(d * u * s * (1 + g * (1 - s)));
    dup[i] = static_cast<float>(d * g * s);
  }
}

void rotate(std::size_t n, const float* cosines, const float* sines, bool back, float* x) {
  for (std::size_t i = 0; i < n; ++i) {
    const double a = x[i], b = x[n + i], c = cosines[i], s = back ? -sines[i] : sines[i];
    x[i] = static_cast<float>(a * c - b * s);
    x[n + i] = static_cast<float>(b * c + a * s);
  }
}

void relu(std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = y[i] < 0 ? 0 : y[i];
}

void relu_backward(std::size_t n, const float* y, float* dy) {
  for (std::size_t i = 0; i < n; ++i) dy[i] = y[i] > 0 ? dy[i] : 0;
}

void softmax_causal(const CausalShape& shape, float scale, float* s, std::size_t ld) {
  for (std::size_t i = 0; i < shape.rows; ++i, s += ld) {
    const std::size_t first = shape.first(i), end = shape.end(i);
    const double top = *std::max_element(s + first, s + end);
    double sum = 0;
    for (std::size_t j = first; j < end; ++j) sum += portable_exp(scale * (s[j] - top));
    for (std::size_t j = first; j < end; ++j)
      s[j] = static_cast<float>(portable_exp(scale * (s[j] - top)) / sum);
    std::fill(s, s + first, 0.0f);
    std::fill(s + end, s + shape.columns, 0.0f);
  }
}

void softmax_causal_backward(const CausalShape& shape, float scale, const float* p, float* dp_ds,
                             std::size_t ld) {
  for (std::size_t i = 0; i < shape.rows; ++i, p += ld, dp_ds += ld) {
    const std::size_t first = shape.first(i), end = shape.end(i);
    double sum = 0;
    for (std::size_t j = first; j < end; ++j) sum += static_cast<double>(p[j]) * dp_ds[j];
    for (std::size_t j = first; j < end; ++j)
      dp_ds[j] = static_cast<float>(scale * (p[j] * (dp_ds[j] - sum)));
    std::fill(dp_ds, dp_ds + first, 0.0f);
    std::fill(dp_ds + end, dp_ds + shape.columns, 0.0f);
  }
}

double cross_entropy(std::size_t rows, std::size_t classes, float* logits,
                     const std::int32_t* targets, bool gradient, float scale) {
  double loss = 0;
  for (std::size_t r = 0; r < rows; ++r, logits += classes) {
    const double top = *std::max_element(logits, logits + classes);
    const auto target = static_cast<std::size_t>(targets[r]);
    double sum = 0;
    for (std::size_t i = 0; i < classes; ++i) sum += portable_exp(logits[i] - top);
    loss += portable_log(sum) + top - logits[target];
    for (std::size_t i = 0; gradient && i < classes; ++i) {
      const double p = portable_exp(logits[i] - top) / sum;
      logits[i] = static_cast<float>((p - (i == target ? 1 : 0)) * scale);
    }
  }
  return loss;
}

void column_sums(std::size_t rows, std::size_t n, const float* x, float* sums) {
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::size_t r = 0; r < rows; ++r) sum += x[r * n + i];
    sums[i] = static_cast<float>(sum);
  }
}

void sum(std::size_t n, const float* a, const float* b, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

}  // namespace

const KernelTable& reference_kernels() {
  static constexpr KernelTable table{"reference",
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
  return table;
}

}  // namespace starling::kernels
