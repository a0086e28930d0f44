#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cpu/table.h"
#include "kernels/cuda/layers.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/device_matrix.h"
#include "tests/cuda/orders.h"

namespace starling::kernels::cuda {
namespace {

using Doubles = std::vector<double>;

// Arrays of a call, on the device.
class Run {
 public:
  Run(Precision of, AttentionShape s, std::size_t offset = 0, double spread = 1, unsigned seed = 1)
      : type(of),
        shape(s),
        rows(std::size_t{s.sequences} * s.positions),
        width(std::size_t{s.heads} * s.head_width),
        key_width(width / s.group),
        columns(width + 2 * key_width),
        random_(seed),
        qkv(input(columns, offset, spread)),
        d_out(input(width, offset, 1)),
        out(DeviceMatrix::empty(of, {rows, width, width, offset})),
        d_qkv(DeviceMatrix::empty(of, {rows, columns, columns, offset})),
        log_sums(rows * s.heads),
        dots(rows * s.heads) {}

  void forward() const {
    attention(nullptr, type, shape, heads_of<const void>(qkv.data()), out.data(), log_sums.data());
  }
  void backward() const {
    attention_backward(nullptr, type, shape, heads_of<const void>(qkv.data()), out.data(),
                       log_sums.data(), d_out.data(), heads_of<void>(d_qkv.data()), dots.data());
  }
  // Rows of queries, keys and values lie one behind the other.
  template <class Void>
  HeadRows<Void> heads_of(Void* at) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    const auto from = [&](std::size_t column) {
      return static_cast<Byte*>(at) + column * bytes_of(type);
    };
    return {at, from(width), from(width + key_width), columns, columns};
  }
  // Of queries (0), keys (1) or values (2) of a head of queries, in a row of qkv.
  std::size_t column(std::size_t which, std::size_t head, std::size_t d) const {
    if (which == 0) return head * shape.head_width + d;
    return width + (which - 1) * key_width + head / shape.group * shape.head_width + d;
  }
  // The first row that a row sees.
  std::size_t first_seen(std::size_t row) const {
    return shape.window != 0 && row >= shape.window ? row + 1 - shape.window : 0;
  }
  std::size_t statistic(std::size_t sequence, std::size_t head, std::size_t position) const {
    return (sequence * shape.heads + head) * shape.positions + position;
  }
  std::string text() const {
    return text_of(type) + std::string(" sequences ") + std::to_string(shape.sequences) +
           " positions " + std::to_string(shape.positions) + " heads " +
           std::to_string(shape.heads) + " width " + std::to_string(shape.head_width) + " group " +
           std::to_string(shape.group) + " window " + std::to_string(shape.window);
  }

  const Precision type;
  const AttentionShape shape;
  const std::size_t rows, width, key_width, columns;  // columns: of qkv

 private:
  DeviceMatrix input(std::size_t wide, std::size_t offset, double spread) {
    std::normal_distribution<double> draw(0, spread);
    Doubles values(rows * wide);
    for (double& value : values) value = draw(random_);
    return DeviceMatrix(type, {rows, wide, wide, offset}, values);
  }
  std::mt19937 random_;

 public:
  const DeviceMatrix qkv, d_out, out, d_qkv;
  const DeviceArray<float> log_sums, dots;
};

// The greatest error as a share of its bound; a NaN is beyond all bounds.
void note(double got, double wanted, double bound, double& worst) {
  const double share = std::abs(got - wanted) / (bound + 1e-30);
  worst = std::max(worst, std::isnan(share) ? 1e30 : share);
}

// A gradient of qkv in double, [rows, columns], and how far another may be from it.
struct Gradient {
  Doubles wanted, bound;
};

// One head of one sequence in double, by the formulae.
class Head {
 public:
  Head(const Run& run, std::size_t sequence, std::size_t head)
      : run_(run),
        sequence_(sequence),
        head_(head),
        t_(run.shape.positions),
        d_(run.shape.head_width),
        scale_(1 / std::sqrt(static_cast<double>(d_))) {}

  double qkv(std::size_t which, std::size_t i, std::size_t d) const {
    return run_.qkv(row(i), run_.column(which, head_, d));
  }
  double d_out(std::size_t i, std::size_t d) const { return run_.d_out(row(i), head_ * d_ + d); }
  std::size_t row(std::size_t i) const { return sequence_ * t_ + i; }

  // Error bounds: fp32 sums of d products and of t weights, a unit or two in exp; a weight may be
  // rounded to the type for its product.
  void compare_forward(const Doubles& out, const std::vector<float>& log_sums,
                       double& worst) const {
    for (std::size_t i = 0; i < t_; ++i) {
      const std::size_t first = run_.first_seen(i);
      Doubles scores(i + 1, -INFINITY);
      double magnitude = 0;
      for (std::size_t j = first; j <= i; ++j) scores[j] = score(i, j, magnitude);
      const double top = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (const double s : scores) sum += std::exp(s - top);
      const double log_sum = top + std::log(sum);
      const double error = weight_error(magnitude);
      note(log_sums[run_.statistic(sequence_, head_, i)], log_sum,
           error + 0x1p-22 * std::abs(log_sum), worst);
      for (std::size_t d = 0; d < d_; ++d) {
        double wanted = 0, sizes = 0, values = 0;
        for (std::size_t j = first; j <= i; ++j) {
          wanted += std::exp(scores[j] - log_sum) * qkv(2, j, d);
          sizes += std::exp(scores[j] - log_sum) * std::abs(qkv(2, j, d));
          values += std::abs(qkv(2, j, d));
        }
        note(out[row(i) * run_.width + head_ * d_ + d], wanted,
             (error + rounding(run_.type)) * sizes + rounding(run_.type) * std::abs(wanted) +
                 underflow(run_.type) * (values + 1),
             worst);
      }
    }
  }

  // Takes out and log_sums as they were computed, so that only the backward pass is compared. Heads that share
  // keys and values add to the same.
  void add_backward(const Doubles& out, const std::vector<float>& log_sums,
                    Gradient& gradient) const {
    const auto add = [&](std::size_t which, std::size_t i, std::size_t d, double value,
                         double error) {
      const std::size_t at = row(i) * run_.columns + run_.column(which, head_, d);
      gradient.wanted[at] += value;
      gradient.bound[at] += error;
    };
    const double sums =
        static_cast<double>(t_ * run_.shape.group + 4) * 0x1p-24 + rounding(run_.type);
    for (std::size_t i = 0; i < t_; ++i) {
      double dot = 0, dot_size = 0;
      for (std::size_t d = 0; d < d_; ++d) {
        dot += out[row(i) * run_.width + head_ * d_ + d] * d_out(i, d);
        dot_size += std::abs(out[row(i) * run_.width + head_ * d_ + d] * d_out(i, d));
      }
      const double log_sum = log_sums[run_.statistic(sequence_, head_, i)];
      for (std::size_t j = run_.first_seen(i); j <= i; ++j) {
        double magnitude = 0, d_weight = 0, size = dot_size;
        const double weight = std::exp(score(i, j, magnitude) - log_sum);
        for (std::size_t d = 0; d < d_; ++d) {
          d_weight += d_out(i, d) * qkv(2, j, d);
          size += std::abs(d_out(i, d) * qkv(2, j, d));
        }
        const double error = weight_error(magnitude) + 0x1p-22 * std::abs(log_sum);
        const double d_score = weight * (d_weight - dot) * scale_;
        const double d_score_error =
            (error + sums) * std::abs(d_score) +
            scale_ * weight * static_cast<double>(d_ + 8) * 0x1p-24 * size +
            scale_ * underflow(run_.type);
        for (std::size_t d = 0; d < d_; ++d) {
          add(0, i, d, d_score * qkv(1, j, d), d_score_error * std::abs(qkv(1, j, d)));
          add(1, j, d, d_score * qkv(0, i, d), d_score_error * std::abs(qkv(0, i, d)));
          add(2, j, d, weight * d_out(i, d),
              ((error + sums) * weight + underflow(run_.type)) * std::abs(d_out(i, d)));
        }
      }
    }
  }

 private:
  double score(std::size_t i, std::size_t j, double& magnitude) const {
    double sum = 0, size = 0;
    for (std::size_t d = 0; d < d_; ++d) {
      sum += qkv(0, i, d) * qkv(1, j, d);
      size += std::abs(qkv(0, i, d) * qkv(1, j, d));
    }
    magnitude = std::max(magnitude, size * scale_);
    return sum * scale_;
  }
  // Relative, of a weight, if its score is a sum of that magnitude.
  double weight_error(double magnitude) const {
    return static_cast<double>(d_ + t_ + 16) * 0x1p-24 * (1 + magnitude);
  }

  const Run& run_;
  const std::size_t sequence_, head_, t_, d_;
  const double scale_;
};

void check_attention(const Run& run) {
  CAPTURE(run.text());
  run.forward();
  run.backward();
  const Doubles out = run.out.read(), d_qkv = run.d_qkv.read();
  const std::vector<float> log_sums = run.log_sums.host();
  double worst_forward = 0, worst_backward = 0;
  Gradient gradient{Doubles(d_qkv.size()), Doubles(d_qkv.size())};
  for (std::size_t s = 0; s < run.shape.sequences; ++s)
    for (std::size_t h = 0; h < run.shape.heads; ++h) {
      const Head head(run, s, h);
      head.compare_forward(out, log_sums, worst_forward);
      head.add_backward(out, log_sums, gradient);
    }
  for (std::size_t i = 0; i < d_qkv.size(); ++i)
    note(
        d_qkv[i], gradient.wanted[i],
        gradient.bound[i] + rounding(run.type) * std::abs(gradient.wanted[i]) + underflow(run.type),
        worst_backward);
  CHECK(worst_forward <= 1);
  CHECK(worst_backward <= 1);
}

TEST_CASE("attention of all widths and lengths is that of plain loops, and so is its gradient") {
  unsigned seed = 0;
  for (const Precision type : kTypes)
    for (const std::uint32_t width : {4u, 5u, 8u, 16u, 64u, 80u, 128u})
      for (const std::uint32_t positions : {1u, 5u, 32u, 64u, 65u, 130u}) {
        ++seed;
        const std::uint32_t sequences = 1 + seed % 2, heads = 1 + seed % 3;
        check_attention({type, {sequences, positions, heads, width}, seed % 2, 1, seed});
      }
}

TEST_CASE("attention over several tiles of keys and queries") {
  for (const Precision type : kTypes) check_attention({type, {1, 300, 1, 64}});
}

// Goal: heads that share keys and values, and rows that see a window alone. Method: windows of less than a tile, of
// whole tiles and beside their borders, of one row, and as long as all rows; plain loops as above.
TEST_CASE("attention of shared keys and of windows is that of plain loops") {
  unsigned seed = 100;
  for (const Precision type : kTypes)
    for (const AttentionShape shape :
         {AttentionShape{2, 65, 4, 16, 2}, AttentionShape{1, 130, 3, 64, 3},
          AttentionShape{1, 70, 4, 80, 4}, AttentionShape{1, 150, 1, 64, 1, 1},
          AttentionShape{1, 300, 1, 16, 1, 64}, AttentionShape{1, 200, 2, 64, 2, 65},
          AttentionShape{2, 140, 4, 24, 2, 33}, AttentionShape{1, 40, 2, 128, 2, 40},
          AttentionShape{1, 170, 1, 128, 1, 100}, AttentionShape{1, 40, 2, 8, 1, 1000}}) {
      ++seed;
      check_attention({type, shape, seed % 2, 1, seed});
    }
}

TEST_CASE("attention with a window of all rows has the bits of one without") {
  for (const Precision type : kTypes) {
    const Run without(type, {1, 140, 2, 64, 2}), with(type, {1, 140, 2, 64, 2, 140});
    for (const Run* const run : {&without, &with}) {
      run->forward();
      run->backward();
    }
    CHECK(without.out.bits() == with.out.bits());
    CHECK(without.d_qkv.bits() == with.d_qkv.bits());
  }
}

// Scores up to several hundred: exponentials would overflow or vanish but for the running maximum.
TEST_CASE("attention with large scores") {
  for (const Precision type : kTypes) check_attention({type, {1, 70, 2, 16}, 0, /*spread=*/10});
}

TEST_CASE("attention has the same bits in every order of threads") {
  for (const Precision type : kTypes)
    for (const AttentionShape shape :
         {AttentionShape{2, 150, 1, 64}, AttentionShape{1, 150, 2, 80, 2, 70}}) {
      std::vector<std::uint32_t> first;
      in_every_order([&] {
        const Run run(type, shape);
        run.forward();
        run.backward();
        std::vector<std::uint32_t> bits = run.out.bits();
        for (const std::uint32_t word : run.d_qkv.bits()) bits.push_back(word);
        for (const float x : run.log_sums.host()) bits.push_back(std::bit_cast<std::uint32_t>(x));
        if (first.empty()) first = bits;
        CHECK(bits == first);
      });
    }
}

TEST_CASE("attention has the same bits wherever its arrays lie") {
  for (const Precision type : kTypes) {
    const Run even(type, {1, 70, 2, 32}), odd(type, {1, 70, 2, 32}, /*offset=*/1);
    for (const Run* const run : {&even, &odd}) {
      run->forward();
      run->backward();
    }
    CHECK(even.out.bits() == odd.out.bits());
    CHECK(even.d_qkv.bits() == odd.d_qkv.bits());
  }
}

// Method: the last of three sequences alone, from the same memory.
TEST_CASE("attention of a sequence has the same bits with others beside it") {
  for (const Precision type : kTypes) {
    const Run all(type, {3, 40, 2, 24});
    all.forward();
    all.backward();
    AttentionShape shape = all.shape;
    shape.sequences = 1;
    const Run one(type, shape);
    const auto last = [&](const DeviceMatrix& of, std::size_t columns) {
      return static_cast<const void*>(static_cast<const std::byte*>(of.data()) +
                                      80 * columns * bytes_of(type));
    };
    const HeadRows<const void> qkv = one.heads_of(last(all.qkv, all.columns));
    attention(nullptr, type, shape, qkv, one.out.data(), one.log_sums.data());
    attention_backward(nullptr, type, shape, qkv, one.out.data(), one.log_sums.data(),
                       last(all.d_out, all.width), one.heads_of(one.d_qkv.data()), one.dots.data());
    const auto tail = [](const std::vector<std::uint32_t>& of, std::size_t n) {
      return std::vector<std::uint32_t>(of.end() - static_cast<std::ptrdiff_t>(n), of.end());
    };
    CHECK(one.out.bits() == tail(all.out.bits(), 40 * all.width));
    CHECK(one.d_qkv.bits() == tail(all.d_qkv.bits(), 40 * all.columns));
  }
}

// Goal: the backward pass is the derivative of the forward pass. Method: the formulae in double with
// every input moved by 1e-4 both ways.
TEST_CASE("the gradient of attention is that of central differences") {
  const Run run(Precision::kFp32, {1, 6, 2, 4});
  run.forward();
  run.backward();
  const Doubles gradient = run.d_qkv.read();
  const std::size_t t = 6, heads = 2, width = 4, columns = run.columns;
  Doubles qkv(t * columns);
  for (std::size_t i = 0; i < t; ++i)
    for (std::size_t c = 0; c < columns; ++c) qkv[i * columns + c] = run.qkv(i, c);
  const auto value = [&] {  // of out times d_out
    double total = 0;
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t i = 0; i < t; ++i) {
        Doubles weights(i + 1);
        double sum = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          double score = 0;
          for (std::size_t d = 0; d < width; ++d)
            score +=
                qkv[i * columns + run.column(0, h, d)] * qkv[j * columns + run.column(1, h, d)];
          sum += weights[j] = std::exp(score / 2);
        }
        for (std::size_t j = 0; j <= i; ++j)
          for (std::size_t d = 0; d < width; ++d)
            total += weights[j] / sum * qkv[j * columns + run.column(2, h, d)] *
                     run.d_out(i, h * width + d);
      }
    return total;
  };
  double worst = 0;
  for (std::size_t at = 0; at < qkv.size(); ++at) {
    const double before = qkv[at];
    qkv[at] = before + 1e-4;
    const double more = value();
    qkv[at] = before - 1e-4;
    const double less = value();
    qkv[at] = before;
    worst = std::max(worst, std::abs((more - less) / 2e-4 - gradient[at]));
  }
  CHECK(worst < 3e-6);  // gradients are of magnitude 1, in fp32
}

// Goal: the same meaning as on the CPU. Method: its kernels, one after another, as layers/attention.cpp.
TEST_CASE("attention is that of the CPU's kernels") {
  const KernelTable& cpu = reference_kernels();
  constexpr std::size_t kT = 33, kD = 16;
  const Run run(Precision::kFp32, {1, kT, 1, kD});
  run.forward();
  std::vector<float> qkv, weights(kT * kT), out(kT * kD), scratch(kGemmScratch);
  for (std::size_t i = 0; i < kT; ++i)
    for (std::size_t c = 0; c < 3 * kD; ++c) qkv.push_back(static_cast<float>(run.qkv(i, c)));
  cpu.gemm({.m = kT,
            .n = kT,
            .k = kD,
            .a = qkv.data(),
            .lda = 3 * kD,
            .b = qkv.data() + kD,
            .ldb = 3 * kD,
            .b_transposed = true,
            .c = weights.data(),
            .ldc = kT,
            .scratch = scratch.data()});
  cpu.softmax_causal({kT, kT}, 0.25f, weights.data(), kT);
  cpu.gemm({.m = kT,
            .n = kD,
            .k = kT,
            .a = weights.data(),
            .lda = kT,
            .b = qkv.data() + 2 * kD,
            .ldb = 3 * kD,
            .c = out.data(),
            .ldc = kD,
            .scratch = scratch.data()});
  const Doubles got = run.out.read();
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - out[i]));
  CHECK(worst < 3e-6);
}

}  // namespace
}  // namespace starling::kernels::cuda
