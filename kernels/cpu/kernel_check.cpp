// Long because each kernel of the table has its check here.

#include "kernels/cpu/kernel_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/check.h"
#include "kernels/cpu/portable_math.h"

namespace starling::kernels {
namespace {

thread_local KernelCheck* current = nullptr;

constexpr double kUnit = 0x1p-24;    // relative, of one rounding
constexpr double kFunctions = 1e-4;  // relative, of exp and what is made of it: measured are 4e-6
constexpr double kTooLarge =
    1e38;  // sums of such sizes may overflow in one order and not in another
constexpr double kUnderflow = 1e-30;   // absolute: what small results may lose
constexpr std::size_t kPositions = 8;  // of rows and of columns
constexpr std::size_t kSlice = 16;     // elements in a row, of kernels that go through elements

// A sum in double, with that of sizes: rounding is measured by the latter.
struct Sum {
  double value = 0, size = 0;
  void add(double term) {
    value += term;
    size += std::fabs(term);
  }
};

std::vector<float> copy(const float* from, std::size_t n) {
  return {from, from + n};
}

double largest(const std::vector<float>& values) {
  double size = 0;
  for (const float v : values) size = std::max(size, std::fabs(static_cast<double>(v)));
  return size;
}

// Where the slices of n elements begin: at both ends and in the middle.
std::vector<std::size_t> slices(std::size_t n) {
  if (n <= kSlice) return {0};
  return {0, n / 2 - std::min(n / 2, kSlice / 2), n - kSlice};
}

std::string text(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.9g", value);
  return digits;
}

// Row sums of softmax over `n` numbers times `scale`.
struct Softmax {
  Softmax(const float* from, std::size_t n, double by)
      : numbers(copy(from, n)), scale(by), top(*std::max_element(numbers.begin(), numbers.end())) {
    for (const float x : numbers) sum += portable_exp(scale * (x - top));
    // Arguments of exp are rounded, and their error is one of its result; so is that of the sum.
    relative =
        kFunctions + kUnit * (8 * std::fabs(scale) * largest(numbers) + static_cast<double>(n));
  }
  double operator[](std::size_t j) const { return portable_exp(scale * (numbers[j] - top)) / sum; }

  std::vector<float> numbers;
  double scale, top, sum = 0, relative = 0;
};

}  // namespace

// The functions of the table.
struct Checked {
  static KernelCheck& check() {
    STARLING_CHECK(current != nullptr);
    return *current;
  }
  static const KernelTable& kernels() { return check().kernels_; }

  static void compare(const char* kernel, std::size_t rows, std::size_t columns, std::size_t row,
                      std::size_t column, double got, double want, double tolerance) {
    KernelCheck& c = check();
    ++c.samples_;
    if (!std::isfinite(want) || !std::isfinite(tolerance) || std::fabs(want) > kTooLarge) return;
    if (std::fabs(got - want) <= tolerance || !c.first_.empty()) return;
    c.first_ = std::string(c.kernels_.isa) + "'s " + kernel + " of " + std::to_string(rows) +
               " x " + std::to_string(columns) + " gives " + text(got) + " in row " +
               std::to_string(row) + ", column " + std::to_string(column) + "; expected " +
               text(want);
  }

  // Both ends of n positions, and drawn ones between; all of a few.
  static std::vector<std::size_t> positions(std::size_t n) {
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < std::min(n, kPositions); ++i) at.push_back(i);
    if (n <= kPositions) return at;
    at[1] = n - 1;
    for (std::size_t i = 2; i < kPositions; ++i) {
      std::uint64_t x = ++check().draws_ * 0x9e3779b97f4a7c15;  // splitmix64
      x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
      at[i] = (x ^ (x >> 32)) % n;
    }
    return at;
  }

  static void gemm(const Gemm& g) {
    const auto rows = positions(g.m), columns = positions(g.n);
    std::vector<double> added;  // where `add` is c it is gone afterwards
    for (const std::size_t i : rows)
      for (const std::size_t j : columns) added.push_back(g.add ? g.add[i * g.ldadd + j] : 0);
    kernels().gemm(g);
    const double roundings = static_cast<double>(std::min(g.k, kGemmChunk) + g.k / kGemmChunk + 4);
    const double* plus = added.data();
    for (const std::size_t i : rows) {
      const std::size_t from = g.trim == Trim::kUpperA ? std::min(g.k, i) : 0;
      const std::size_t to = g.trim == Trim::kLowerA ? std::min(g.k, i + 1) : g.k;
      for (const std::size_t j : columns) {
        Sum sum;
        sum.add(*plus++);
        if (g.trim == Trim::kLowerC && j > i) continue;
        if (g.bias) sum.add(g.bias[j]);
        for (std::size_t k = from; k < to; ++k) {
          const double a = g.a_transposed ? g.a[k * g.lda + i] : g.a[i * g.lda + k];
          sum.add(a * (g.b_transposed ? g.b[j * g.ldb + k] : g.b[k * g.ldb + j]));
        }
        if (sum.size > kTooLarge) continue;
        compare("product", g.m, g.n, i, j, g.c[i * g.ldc + j], sum.value,
                1.01 * roundings * kUnit * sum.size + kUnderflow);
      }
    }
  }

  static void layer_norm(NormShape shape, const float* x, const float* gain, const float* bias,
                         float* y, float* mean, float* rstd) {
    const std::size_t w = shape.width;
    const auto rows = positions(shape.rows);
    std::vector<std::vector<float>> xs;
    for (const std::size_t r : rows) xs.push_back(copy(x + r * w, w));
    kernels().layer_norm(shape, x, gain, bias, y, mean, rstd);
    for (std::size_t n = 0; n < rows.size(); ++n) {
      std::vector<float> want(w);
      float m = 0, s = 0;
      reference_kernels().layer_norm({1, w}, xs[n].data(), gain, bias, want.data(), &m, &s);
      // x - mean is what is left of two larger numbers.
      const double lost = static_cast<double>(w) * kUnit * largest(xs[n]) * s;
      for (const std::size_t i : positions(w))
        compare("layer norm", shape.rows, w, rows[n], i, y[rows[n] * w + i], want[i],
                kFunctions * (std::fabs(want[i]) + std::fabs(bias[i])) +
                    (kFunctions + lost) * std::fabs(gain[i]) + kUnderflow);
    }
  }

  static void layer_norm_backward(NormShape shape, const float* x, const float* gain,
                                  const float* mean, const float* rstd, const float* dy,
                                  const float* add, float* dx, float* dgain, float* dbias) {
    const std::size_t w = shape.width;
    const auto rows = positions(shape.rows), columns = positions(w);
    std::vector<Sum> to_gain, to_bias;  // of columns; dx may be the memory of dy or of add
    for (const std::size_t i : columns) {
      Sum of_gain, of_bias;
      for (std::size_t r = 0; r < shape.rows; ++r) {
        const double d = dy[r * w + i], at = x[r * w + i], s = rstd[r];
        of_gain.add(d * (at - mean[r]) * s);
        of_gain.size +=
            std::fabs(d) * s * (std::fabs(at) + std::fabs(static_cast<double>(mean[r])));
        of_bias.add(d);
      }
      to_gain.push_back(of_gain), to_bias.push_back(of_bias);
    }
    std::vector<std::vector<float>> dys, adds;
    for (const std::size_t r : rows) {
      dys.push_back(copy(dy + r * w, w));
      adds.push_back(add ? copy(add + r * w, w) : std::vector<float>(w));
    }
    kernels().layer_norm_backward(shape, x, gain, mean, rstd, dy, add, dx, dgain, dbias);
    const double roundings = 2 * (static_cast<double>(shape.rows) + 8) * kUnit;
    for (std::size_t n = 0; n < columns.size(); ++n) {
      const std::size_t i = columns[n];
      compare("layer norm's gradient of gains", shape.rows, w, 0, i, dgain[i], to_gain[n].value,
              roundings * to_gain[n].size + kUnderflow);
      compare("layer norm's gradient of biases", shape.rows, w, 0, i, dbias[i], to_bias[n].value,
              roundings * to_bias[n].size + kUnderflow);
    }
    for (std::size_t n = 0; n < rows.size(); ++n) {
      const std::size_t r = rows[n];
      const auto xs = copy(x + r * w, w);
      std::vector<float> want(w), of_gain(w), of_bias(w);
      reference_kernels().layer_norm_backward({1, w}, xs.data(), gain, mean + r, rstd + r,
                                              dys[n].data(), adds[n].data(), want.data(),
                                              of_gain.data(), of_bias.data());
      double flow = 0;
      for (std::size_t i = 0; i < w; ++i)
        flow = std::max(flow, std::fabs(static_cast<double>(dys[n][i]) * gain[i]));
      const double lost = 1 + static_cast<double>(w) * kUnit * largest(xs) * rstd[r];
      for (const std::size_t i : columns) {
        const double normed = (static_cast<double>(xs[i]) - mean[r]) * rstd[r];
        compare(
            "layer norm's gradient", shape.rows, w, r, i, dx[r * w + i], want[i],
            kFunctions * (std::fabs(adds[n][i]) + rstd[r] * flow * lost * (1 + std::fabs(normed))) +
                kUnderflow);
      }
    }
  }

  static void rms_norm(NormShape shape, float epsilon, const float* x, const float* gain, float* y,
                       float* rstd) {
    const std::size_t w = shape.width;
    const auto rows = positions(shape.rows);
    std::vector<std::vector<float>> xs;
    for (const std::size_t r : rows) xs.push_back(copy(x + r * w, w));
    kernels().rms_norm(shape, epsilon, x, gain, y, rstd);
    for (std::size_t n = 0; n < rows.size(); ++n) {
      std::vector<float> want(w);
      float s = 0;
      reference_kernels().rms_norm({1, w}, epsilon, xs[n].data(), gain, want.data(), &s);
      compare("rms norm's measure", shape.rows, 1, rows[n], 0, rstd[rows[n]], s,
              kFunctions * s + kUnderflow);
      for (const std::size_t i : positions(w))
        compare("rms norm", shape.rows, w, rows[n], i, y[rows[n] * w + i], want[i],
                kFunctions * std::fabs(want[i]) + kUnderflow);
    }
  }

  static void rms_norm_backward(NormShape shape, const float* x, const float* gain,
                                const float* rstd, const float* dy, const float* add, float* dx,
                                float* dgain) {
    const std::size_t w = shape.width;
    const auto rows = positions(shape.rows), columns = positions(w);
    std::vector<Sum> to_gain;  // of columns; dx may be the memory of dy or of add
    for (const std::size_t i : columns) {
      Sum sum;
      for (std::size_t r = 0; r < shape.rows; ++r)
        sum.add(static_cast<double>(dy[r * w + i]) * x[r * w + i] * rstd[r]);
      to_gain.push_back(sum);
    }
    std::vector<std::vector<float>> dys, adds;
    for (const std::size_t r : rows) {
      dys.push_back(copy(dy + r * w, w));
      adds.push_back(add ? copy(add + r * w, w) : std::vector<float>(w));
    }
    kernels().rms_norm_backward(shape, x, gain, rstd, dy, add, dx, dgain);
    const double roundings = 2 * (static_cast<double>(shape.rows) + 8) * kUnit;
    for (std::size_t n = 0; n < columns.size(); ++n)
      compare("rms norm's gradient of gains", shape.rows, w, 0, columns[n], dgain[columns[n]],
              to_gain[n].value, roundings * to_gain[n].size + kUnderflow);
    for (std::size_t n = 0; n < rows.size(); ++n) {
      const std::size_t r = rows[n];
      const auto xs = copy(x + r * w, w);
      std::vector<float> want(w), of_gain(w);
      reference_kernels().rms_norm_backward({1, w}, xs.data(), gain, rstd + r, dys[n].data(),
                                            adds[n].data(), want.data(), of_gain.data());
      double flow = 0;
      for (std::size_t i = 0; i < w; ++i)
        flow = std::max(flow, std::fabs(static_cast<double>(dys[n][i]) * gain[i]));
      for (const std::size_t i : columns) {
        const double normed = static_cast<double>(xs[i]) * rstd[r];
        compare("rms norm's gradient", shape.rows, w, r, i, dx[r * w + i], want[i],
                kFunctions * (std::fabs(adds[n][i]) + rstd[r] * flow * (1 + std::fabs(normed))) +
                    kUnderflow);
      }
    }
  }

  static void gelu(std::size_t n, const float* u, float* g) {
    const std::size_t length = std::min(n, kSlice);
    std::vector<std::vector<float>> us;
    for (const std::size_t at : slices(n)) us.push_back(copy(u + at, length));
    kernels().gelu(n, u, g);
    for (std::size_t s = 0; s < us.size(); ++s) {
      std::vector<float> want(length);
      reference_kernels().gelu(length, us[s].data(), want.data());
      for (std::size_t i = 0; i < length; ++i)
        compare("gelu", 1, n, 0, slices(n)[s] + i, g[slices(n)[s] + i], want[i],
                kFunctions * std::fabs(us[s][i]) + kUnderflow);
    }
  }

  static void gelu_backward(std::size_t n, const float* u, float* dg_du, float* g) {
    const std::size_t length = std::min(n, kSlice);
    std::vector<std::vector<float>> us, ds;
    for (const std::size_t at : slices(n)) {
      us.push_back(copy(u + at, length));
      ds.push_back(copy(dg_du + at, length));
    }
    kernels().gelu_backward(n, u, dg_du, g);
    for (std::size_t s = 0; s < us.size(); ++s) {
      std::vector<float> want = ds[s], again(length);
      reference_kernels().gelu_backward(length, us[s].data(), want.data(), again.data());
      for (std::size_t i = 0; i < length; ++i) {
        const std::size_t at = slices(n)[s] + i;
        compare("gelu's gradient", 1, n, 0, at, dg_du[at], want[i],
                kFunctions * std::fabs(ds[s][i]) + kUnderflow);
        compare("gelu made again", 1, n, 0, at, g[at], again[i],
                kFunctions * std::fabs(us[s][i]) + kUnderflow);
      }
    }
  }

  static void swiglu(std::size_t n, const float* gate, const float* up, float* y) {
    const std::size_t length = std::min(n, kSlice);
    std::vector<std::vector<float>> wants;
    for (const std::size_t at : slices(n)) {
      wants.emplace_back(length);
      reference_kernels().swiglu(length, gate + at, up + at, wants.back().data());
    }
    kernels().swiglu(n, gate, up, y);
    closely("swiglu", n, y, wants);
  }

  static void swiglu_backward(std::size_t n, const float* gate, const float* up, const float* dy,
                              float* dgate, float* dup, float* y) {
    const std::size_t length = std::min(n, kSlice);
    std::vector<std::vector<float>> ys, dgates, dups;
    std::vector<double> sizes;  // of a gate's slope times what flows: its two terms may cancel
    for (const std::size_t at : slices(n)) {
      ys.emplace_back(length), dgates.emplace_back(length), dups.emplace_back(length);
      reference_kernels().swiglu_backward(length, gate + at, up + at, dy + at, dgates.back().data(),
                                          dups.back().data(), ys.back().data());
      for (std::size_t i = 0; i < length; ++i)
        sizes.push_back(std::fabs(static_cast<double>(dy[at + i]) * up[at + i]));
    }
    kernels().swiglu_backward(n, gate, up, dy, dgate, dup, y);
    closely("swiglu made again", n, y, ys);
    closely("swiglu's gradient of what it lets through", n, dup, dups);
    for (std::size_t s = 0; s < dgates.size(); ++s)
      for (std::size_t i = 0; i < length; ++i) {
        const std::size_t at = slices(n)[s] + i;
        compare("swiglu's gradient of gates", 1, n, 0, at, dgate[at], dgates[s][i],
                kFunctions * sizes[s * length + i] + kUnderflow);
      }
  }

  static void rotate(std::size_t n, const float* cosines, const float* sines, bool back, float* x) {
    const auto before = copy(x, 2 * n);
    kernels().rotate(n, cosines, sines, back, x);
    for (const std::size_t i : positions(n)) {
      const double a = before[i], b = before[n + i], c = cosines[i];
      const double s = back ? -sines[i] : sines[i];
      const double size = kFunctions * (std::fabs(a) + std::fabs(b)) + kUnderflow;
      compare("rotation", 2, n, 0, i, x[i], a * c - b * s, size);
      compare("rotation", 2, n, 1, i, x[n + i], b * c + a * s, size);
    }
  }

  static void relu(std::size_t n, float* y) {
    const std::size_t length = std::min(n, kSlice);
    std::vector<std::vector<float>> wants;
    for (const std::size_t at : slices(n)) {
      wants.push_back(copy(y + at, length));
      reference_kernels().relu(length, wants.back().data());
    }
    kernels().relu(n, y);
    exactly("relu", n, y, wants);
  }

  static void relu_backward(std::size_t n, const float* y, float* dy) {
    const std::size_t length = std::min(n, kSlice);
    std::vector<std::vector<float>> wants;
    for (const std::size_t at : slices(n)) {
      wants.push_back(copy(dy + at, length));
      reference_kernels().relu_backward(length, y + at, wants.back().data());
    }
    kernels().relu_backward(n, y, dy);
    exactly("relu's gradient", n, dy, wants);
  }

  static void softmax_causal(const CausalShape& shape, float scale, float* s, std::size_t ld) {
    const auto rows = positions(shape.rows);
    std::vector<Softmax> wants;
    for (const std::size_t i : rows)
      wants.emplace_back(s + i * ld + shape.first(i), shape.end(i) - shape.first(i), scale);
    kernels().softmax_causal(shape, scale, s, ld);
    for (std::size_t n = 0; n < rows.size(); ++n)
      for (const std::size_t j : positions(shape.columns)) {
        const bool seen = j >= shape.first(rows[n]) && j < shape.end(rows[n]);
        const double want = seen ? wants[n][j - shape.first(rows[n])] : 0;
        const double tolerance = seen ? 2 * wants[n].relative * want + kUnderflow : 0;
        compare("softmax", shape.rows, shape.columns, rows[n], j, s[rows[n] * ld + j], want,
                tolerance);
      }
  }

  static void softmax_causal_backward(const CausalShape& shape, float scale, const float* p,
                                      float* dp_ds, std::size_t ld) {
    const auto rows = positions(shape.rows);
    std::vector<std::vector<float>> dps;  // of what the rows see
    std::vector<Sum> sums;
    for (const std::size_t i : rows) {
      const std::size_t first = shape.first(i);
      dps.push_back(copy(dp_ds + i * ld + first, shape.end(i) - first));
      Sum sum;
      for (std::size_t j = 0; j < dps.back().size(); ++j)
        sum.add(static_cast<double>(p[i * ld + first + j]) * dps.back()[j]);
      sums.push_back(sum);
    }
    kernels().softmax_causal_backward(shape, scale, p, dp_ds, ld);
    for (std::size_t n = 0; n < rows.size(); ++n)
      for (const std::size_t j : positions(shape.columns)) {
        const std::size_t i = rows[n], first = shape.first(i);
        const double got = dp_ds[i * ld + j];
        if (j < first || j >= shape.end(i)) {
          compare("softmax's gradient", shape.rows, shape.columns, i, j, got, 0, 0);
          continue;
        }
        const double through = static_cast<double>(scale) * p[i * ld + j], d = dps[n][j - first];
        compare("softmax's gradient", shape.rows, shape.columns, i, j, got,
                through * (d - sums[n].value),
                (kFunctions + static_cast<double>(shape.columns) * kUnit) * std::fabs(through) *
                        (std::fabs(d) + sums[n].size) +
                    kUnderflow);
      }
  }

  static double cross_entropy(std::size_t rows, std::size_t classes, float* logits,
                              const std::int32_t* targets, bool gradient, float scale) {
    const auto chosen = positions(rows);
    std::vector<Softmax> wants;
    for (const std::size_t r : chosen) wants.emplace_back(logits + r * classes, classes, 1);
    const double loss = kernels().cross_entropy(rows, classes, logits, targets, gradient, scale);
    for (std::size_t n = 0; n < chosen.size(); ++n) {
      const std::size_t r = chosen[n];
      Softmax& want = wants[n];
      const auto target = static_cast<std::size_t>(targets[r]);
      auto columns = positions(classes);
      columns.push_back(target);
      for (const std::size_t j : columns) {
        if (!gradient) break;
        const double p = want[j], hit = j == target ? 1 : 0;
        compare("cross entropy's gradient", rows, classes, r, j, logits[r * classes + j],
                (p - hit) * scale,
                (2 * want.relative * p + 2 * kUnit * hit) * std::fabs(scale) + kUnderflow);
      }
      const double expected = portable_log(want.sum) + want.top - want.numbers[target];
      const double alone =
          kernels().cross_entropy(1, classes, want.numbers.data(), targets + r, false, scale);
      compare("cross entropy", 1, classes, 0, target, alone, expected,
              4 * (want.relative + kUnit * (std::fabs(want.top) + std::fabs(expected))));
    }
    return loss;
  }

  static void column_sums(std::size_t rows, std::size_t n, const float* x, float* sums) {
    kernels().column_sums(rows, n, x, sums);
    for (const std::size_t i : positions(n)) {
      Sum sum;
      for (std::size_t r = 0; r < rows; ++r) sum.add(x[r * n + i]);
      compare("sum of columns", rows, n, 0, i, sums[i], sum.value,
              (static_cast<double>(rows) + 4) * kUnit * sum.size + kUnderflow);
    }
  }

  static void sum(std::size_t n, const float* a, const float* b, float* y) {
    const std::size_t length = std::min(n, kSlice);
    std::vector<std::vector<float>> wants;
    for (const std::size_t at : slices(n)) {
      wants.emplace_back(length);
      reference_kernels().sum(length, a + at, b + at, wants.back().data());
    }
    kernels().sum(n, a, b, y);
    exactly("sum", n, y, wants);
  }

  static void closely(const char* kernel, std::size_t n, const float* got,
                      const std::vector<std::vector<float>>& wants) {
    for (std::size_t s = 0; s < wants.size(); ++s)
      for (std::size_t i = 0; i < wants[s].size(); ++i) {
        const std::size_t at = slices(n)[s] + i;
        compare(kernel, 1, n, 0, at, got[at], wants[s][i],
                kFunctions * std::fabs(wants[s][i]) + kUnderflow);
      }
  }

  static void exactly(const char* kernel, std::size_t n, const float* got,
                      const std::vector<std::vector<float>>& wants) {
    for (std::size_t s = 0; s < wants.size(); ++s)
      for (std::size_t i = 0; i < wants[s].size(); ++i) {
        const std::size_t at = slices(n)[s] + i;
        compare(kernel, 1, n, 0, at, got[at], wants[s][i], 0);
      }
  }
};

KernelCheck::KernelCheck(const KernelTable& kernels) : kernels_(kernels) {
  STARLING_CHECK(current == nullptr);
  current = this;
}

KernelCheck::~KernelCheck() {
  current = nullptr;
}

const KernelTable& KernelCheck::table() {
  static constexpr KernelTable table{"checked",
                                     Checked::gemm,
                                     Checked::layer_norm,
                                     Checked::layer_norm_backward,
                                     Checked::rms_norm,
                                     Checked::rms_norm_backward,
                                     Checked::gelu,
                                     Checked::gelu_backward,
                                     Checked::swiglu,
                                     Checked::swiglu_backward,
                                     Checked::rotate,
                                     Checked::relu,
                                     Checked::relu_backward,
                                     Checked::softmax_causal,
                                     Checked::softmax_causal_backward,
                                     Checked::cross_entropy,
                                     Checked::column_sums,
                                     Checked::sum};
  return table;
}

Result<> KernelCheck::held() const {
  if (first_.empty()) return ok();
  return Error(Code::kBadInput,
               first_ + ": this processor or this build computes wrongly, and would train wrongly");
}

}  // namespace starling::kernels
