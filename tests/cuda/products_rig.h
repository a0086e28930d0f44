#pragma once
// Products compared with plain loops in double, for whatever computes them.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/layers.h"
#include "tests/cuda/device_matrix.h"

namespace starling::kernels::cuda {

enum class Adds { kNothing, kOther, kItself };

struct ProductCase {
  std::uint32_t m, n, k;
  Precision in = Precision::kFp32, out = Precision::kFp32;
  bool a_transposed = false, b_transposed = false;
  std::size_t pad = 0, offset = 0;  // elements between lines; before the first
  bool even = false;                // and as many more that lines are a multiple of eight apart
  Epilogue epilogue = Epilogue::kNone;
  bool bias = false;
  Adds adds = Adds::kNothing;
  unsigned seed = 1;

  std::string text() const {
    const auto word = [](bool yes, const char* is, const char* is_not) {
      return yes ? is : is_not;
    };
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " " +
           text_of(in) + "-" + text_of(out) + word(a_transposed, " t", " n") +
           word(b_transposed, "t", "n") + " pad " + std::to_string(pad) + word(even, " even", "") +
           " offset " + std::to_string(offset) + " epilogue " +
           std::to_string(static_cast<int>(epilogue)) + word(bias, " bias", "") + " adds " +
           std::to_string(static_cast<int>(adds)) + " seed " + std::to_string(seed);
  }
};

inline double gelu_in_double(double u) {
  return u / 2 * (1 + std::tanh(0.7978845608028654 * (u + 0.044715 * u * u * u)));
}
inline double gelu_slope_in_double(double u) {
  const double t = std::tanh(0.7978845608028654 * (u + 0.044715 * u * u * u));
  return (1 + t) / 2 + u / 2 * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * u * u);
}

// A case with its operands on the device.
class ProductRun {
 public:
  explicit ProductRun(const ProductCase& c)
      : case_(c),
        random_(c.seed),
        a_(operand(c.m, c.k, c.a_transposed)),
        b_(operand(c.k, c.n, c.b_transposed)),
        c_(c.adds == Adds::kItself ? result() : DeviceMatrix::empty(c.out, lie(c.m, c.n))),
        add_(result()),
        aux_(backward() ? result() : DeviceMatrix::empty(c.out, lie(c.m, c.n))),
        bias_(DeviceMatrix::normal(Precision::kFp32, {1, c.n, c.n, c.offset}, random_)) {}

  Product product() const {
    Product p{.m = case_.m, .n = case_.n, .k = case_.k, .in = case_.in};
    p.a = a_.data(), p.lda = a_.ld(), p.a_transposed = case_.a_transposed;
    p.b = b_.data(), p.ldb = b_.ld(), p.b_transposed = case_.b_transposed;
    p.out = case_.out, p.c = c_.data(), p.ldc = c_.ld();
    if (case_.bias) p.bias = static_cast<const float*>(bias_.data());
    if (case_.adds != Adds::kNothing) p.add = added().data(), p.ldadd = added().ld();
    p.epilogue = case_.epilogue;
    if (case_.epilogue == Epilogue::kGelu || backward()) p.aux = aux_.data();
    return p;
  }
  const DeviceMatrix& a() const { return a_; }
  const DeviceMatrix& b() const { return b_; }
  const DeviceMatrix& bias() const { return bias_; }
  const DeviceMatrix& c() const { return c_; }
  const DeviceMatrix& aux() const { return aux_; }

  // Compares what was computed. An error may be that of a sum of k products in fp32, that of rounding,
  // and a few units in the last place for the functions of an epilogue. twice: what is rounded to
  // halves at the end may have been rounded before the epilogue as well, and so may the bias; where
  // something is added, before that, too.
  void compare(bool twice) const {
    const std::vector<double> c = c_.read(), aux = aux_.read();
    double worst = 0, worst_aux = 0;
    for (std::size_t i = 0; i < case_.m; ++i)
      for (std::size_t j = 0; j < case_.n; ++j) {
        double sum = 0, magnitude = 0;
        for (std::size_t k = 0; k < case_.k; ++k) {
          const double one = (case_.a_transposed ? a_(k, i) : a_(i, k)) *
                             (case_.b_transposed ? b_(j, k) : b_(k, j));
          sum += one;
          magnitude += std::abs(one);
        }
        const double bias = case_.bias ? bias_(0, j) : 0;
        const double add = case_.adds == Adds::kNothing ? 0 : added()(i, j);
        sum += bias + add;
        magnitude += std::abs(bias) + std::abs(add);
        double error = (case_.k + 3) * 0x1p-24 * magnitude;
        const int roundings = !twice ? 0 : case_.adds == Adds::kNothing ? 1 : 2;
        error += roundings * (rounding(case_.out) * magnitude + underflow(case_.out));
        const double u = backward() ? aux_(i, j) : sum;
        double wanted = sum, bound = error;
        if (case_.epilogue == Epilogue::kGelu) {
          wanted = gelu_in_double(u);
          bound = 1.13 * error + 1e-6 * std::abs(u);  // a slope of gelu is at most 1.13
          const double bound_aux =
              1e-30 + error + rounding(case_.out) * std::abs(u) + underflow(case_.out);
          note(aux[i * case_.n + j], u, bound_aux, worst_aux);
        } else if (case_.epilogue == Epilogue::kGeluBackward) {
          wanted = sum * gelu_slope_in_double(u);
          bound = 1.13 * error + 6e-6 * std::abs(sum);
        } else if (case_.epilogue == Epilogue::kRelu) {
          wanted = std::max(sum, 0.0);
        } else if (case_.epilogue == Epilogue::kReluBackward) {
          wanted = u > 0 ? sum : 0;
        }
        bound += 1e-30 + rounding(case_.out) * std::abs(wanted) + underflow(case_.out);
        note(c[i * case_.n + j], wanted, bound, worst);
      }
    CHECK(worst <= 1);
    CHECK(worst_aux <= 1);
  }

 private:
  bool backward() const {
    return case_.epilogue == Epilogue::kGeluBackward || case_.epilogue == Epilogue::kReluBackward;
  }
  Lie lie(std::size_t rows, std::size_t columns) const {
    const std::size_t ld = columns + case_.pad;
    return {rows, columns, case_.even ? (ld + 7) / 8 * 8 : ld, case_.offset};
  }
  DeviceMatrix operand(std::size_t rows, std::size_t columns, bool transposed) {
    if (transposed) std::swap(rows, columns);
    return DeviceMatrix::normal(case_.in, lie(rows, columns), random_);
  }
  DeviceMatrix result() { return DeviceMatrix::normal(case_.out, lie(case_.m, case_.n), random_); }
  const DeviceMatrix& added() const { return case_.adds == Adds::kItself ? c_ : add_; }

  static void note(double got, double wanted, double bound, double& worst) {
    const double share = std::abs(got - wanted) / bound;
    worst = std::max(worst, std::isnan(share) ? 1e30 : share);
  }

  ProductCase case_;
  std::mt19937 random_;
  DeviceMatrix a_, b_, c_, add_, aux_, bias_;
};

inline void check_product(Products& products, const ProductCase& c, bool twice) {
  CAPTURE(c.text());
  const ProductRun run(c);
  products.multiply(nullptr, run.product());
  run.compare(twice);
}

// Sizes around those of tiles, types, all ways in which operands may lie; everything else by chance.
inline std::vector<ProductCase> awkward_products() {
  constexpr std::uint32_t kSizes[][3] = {
      {1, 1, 1},    {3, 1, 17},    {1, 3, 64},     {17, 65, 1},     {64, 64, 64},
      {65, 127, 3}, {127, 64, 65}, {128, 128, 32}, {130, 129, 100}, {8, 264, 96}};
  constexpr Precision kInOut[][2] = {
      {Precision::kFp32, Precision::kFp32}, {Precision::kFp32, Precision::kBf16},
      {Precision::kFp32, Precision::kFp16}, {Precision::kBf16, Precision::kFp32},
      {Precision::kBf16, Precision::kBf16}, {Precision::kFp16, Precision::kFp32},
      {Precision::kFp16, Precision::kFp16}};
  struct {
    std::size_t pad, offset;
    bool even;
  } constexpr kLies[] = {{0, 0, false}, {1, 8, true}, {3, 1, false}};
  std::mt19937 random(7);
  std::vector<ProductCase> cases;
  for (const auto& [m, n, k] : kSizes)
    for (const auto& [in, out] : kInOut)
      for (const unsigned transposed : {0u, 1u, 2u, 3u})
        for (const auto& [pad, offset, even] : kLies)
          cases.push_back({.m = m,
                           .n = n,
                           .k = k,
                           .in = in,
                           .out = out,
                           .a_transposed = transposed % 2 == 1,
                           .b_transposed = transposed / 2 == 1,
                           .pad = pad,
                           .offset = offset,
                           .even = even,
                           .epilogue = static_cast<Epilogue>(random() % 5),
                           .bias = random() % 2 == 1,
                           .adds = static_cast<Adds>(random() % 3),
                           .seed = static_cast<unsigned>(cases.size())});
  return cases;
}
// All that may follow a product.
inline std::vector<ProductCase> followed_products() {
  std::vector<ProductCase> cases;
  for (const Precision type : kTypes)
    for (const unsigned epilogue : {0u, 1u, 2u, 3u, 4u})
      for (const bool bias : {false, true})
        for (const Adds adds : {Adds::kNothing, Adds::kOther, Adds::kItself})
          for (const std::size_t pad : {std::size_t{0}, std::size_t{5}})
            cases.push_back({.m = 18,
                             .n = 136,
                             .k = 24,
                             .in = type,
                             .out = type,
                             .pad = pad,
                             .epilogue = static_cast<Epilogue>(epilogue),
                             .bias = bias,
                             .adds = adds,
                             .seed = static_cast<unsigned>(cases.size())});
  return cases;
}

}  // namespace starling::kernels::cuda
