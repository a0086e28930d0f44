#include "kernels/optim/formula_update.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "kernels/optim/optimizer.h"

namespace starling::kernels {
namespace {

constexpr std::size_t kAtOnce = 256;  // elements: all values of a formula stay in the first cache

template <class T>
T sign(T x) {
  return x > 0 ? T(1) : x < 0 ? T(-1) : x;  // of a zero and of no number itself
}
// Where one is no number both are none: it would be lost in a comparison.
template <class T>
T least(T x, T y) {
  return x < y || x != x ? x : y;
}
template <class T>
T greatest(T x, T y) {
  return x > y || x != x ? x : y;
}

double of_step(const FormulaValue& value, const OwnStep& step, const std::vector<double>& values) {
  const auto at = [&](std::size_t i) { return values[value.of[i]]; };
  switch (value.operation) {
    case Operation::kNumber:
      return value.number;
    case Operation::kRate:
      return step.rate;
    case Operation::kDecay:
      return step.weight_decay;
    case Operation::kStep:
      return static_cast<double>(step.t);
    case Operation::kAdd:
      return at(0) + at(1);
    case Operation::kSubtract:
      return at(0) - at(1);
    case Operation::kMultiply:
      return at(0) * at(1);
    case Operation::kDivide:
      return at(0) / at(1);
    case Operation::kNegate:
      return -at(0);
    case Operation::kSqrt:
      return std::sqrt(at(0));
    case Operation::kAbs:
      return std::fabs(at(0));
    case Operation::kSign:
      return sign(at(0));
    case Operation::kMin:
      return least(at(0), at(1));
    case Operation::kMax:
      return greatest(at(0), at(1));
    case Operation::kSelect:
      return at(0) > 0 ? at(1) : at(2);
    case Operation::kPower:
      return power(at(0), value.number < 0 ? step.t : static_cast<std::uint64_t>(value.number));
    case Operation::kGradient:
    case Operation::kWeight:
    case Operation::kFirst:
    case Operation::kSecond:
      break;  // of elements
  }
  return 0;
}

// Writes out[i] of the i-th element of each row: rows of one formula do not overlap.
template <class Of, class... Row>
void each(std::size_t n, float* __restrict out, Of of, const Row* __restrict... rows) {
  for (std::size_t i = 0; i < n; ++i) out[i] = of(rows[i]...);
}

// Rows of arguments that an operation does not have are any.
void of_elements(Operation operation, std::size_t n, float* out, const float* a, const float* b,
                 const float* c) {
  switch (operation) {
    case Operation::kAdd:
      return each(
          n, out, [](float x, float y) { return x + y; }, a, b);
    case Operation::kSubtract:
      return each(
          n, out, [](float x, float y) { return x - y; }, a, b);
    case Operation::kMultiply:
      return each(
          n, out, [](float x, float y) { return x * y; }, a, b);
    case Operation::kDivide:
      return each(
          n, out, [](float x, float y) { return x / y; }, a, b);
    case Operation::kNegate:
      return each(
          n, out, [](float x) { return -x; }, a);
    case Operation::kSqrt:
      return each(
          n, out, [](float x) { return std::sqrt(x); }, a);
    case Operation::kAbs:
      return each(
          n, out, [](float x) { return std::fabs(x); }, a);
    case Operation::kSign:
      return each(
          n, out, [](float x) { return sign(x); }, a);
    case Operation::kMin:
      return each(
          n, out, [](float x, float y) { return least(x, y); }, a, b);
    case Operation::kMax:
      return each(
          n, out, [](float x, float y) { return greatest(x, y); }, a, b);
    case Operation::kSelect:
      return each(
          n, out, [](float x, float y, float z) { return x > 0 ? y : z; }, a, b, c);
    default:
      STARLING_CHECK_MSG(false, "an operation of elements " << int(operation));
  }
}

struct Update {
  Formula formula;

  void operator()(const OwnStep& step, std::span<const float> gradient, std::span<float> weights,
                  std::span<float> first, std::span<float> second) const {
    const auto& values = formula.values;
    // A row of elements for each value; those of the step are computed in double, and are the same in all of it.
    thread_local std::vector<double> of_the_step;
    thread_local std::vector<float> rows;
    of_the_step.resize(values.size());
    rows.resize(values.size() * kAtOnce);
    const auto row = [&](std::size_t k) { return rows.data() + k * kAtOnce; };
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (!values[k].of_step) continue;
      of_the_step[k] = of_step(values[k], step, of_the_step);
      std::fill_n(row(k), kAtOnce, static_cast<float>(of_the_step[k]));
    }
    for (std::size_t begin = 0; begin < gradient.size(); begin += kAtOnce) {
      const std::size_t n = std::min(kAtOnce, gradient.size() - begin);
      for (std::size_t k = 0; k < values.size(); ++k) {
        const FormulaValue& value = values[k];
        if (value.of_step) continue;
        float* const out = row(k);
        if (value.operation == Operation::kGradient)
          each(
              n, out, [clip = step.clip](float x) { return x * clip; }, gradient.data() + begin);
        else if (value.operation == Operation::kWeight)
          std::copy_n(weights.data() + begin, n, out);
        else if (value.operation == Operation::kFirst)
          std::copy_n(first.data() + begin, n, out);
        else if (value.operation == Operation::kSecond)
          formula.moments == 2 ? std::copy_n(second.data() + begin, n, out) : out;
        else
          of_elements(value.operation, n, out, row(value.of[0]), row(value.of[1]),
                      row(value.of[2]));
      }
      std::copy_n(row(formula.weight), n, weights.data() + begin);
      std::copy_n(row(formula.first), n, first.data() + begin);
      if (formula.moments == 2) std::copy_n(row(formula.second), n, second.data() + begin);
    }
  }
};

}  // namespace

OwnOptimizer optimizer_of(Formula formula) {
  const unsigned moments = formula.moments;
  return {moments, Update{std::move(formula)}};
}

}  // namespace starling::kernels
