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
      return at(0) < at(1) ? at(0) : at(1);
    case Operation::kMax:
      return at(0) > at(1) ? at(0) : at(1);
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

// The elements of one value; what is of the step is there once, `stride` 0.
struct Row {
  const float* at;
  std::size_t stride;
  float operator[](std::size_t i) const { return at[i * stride]; }
};

template <class Of>
void each(float* out, std::size_t n, Of of) {
  for (std::size_t i = 0; i < n; ++i) out[i] = of(i);
}

void of_elements(const FormulaValue& value, std::size_t n, float* out, Row a, Row b, Row c) {
  switch (value.operation) {
    case Operation::kAdd:
      return each(out, n, [=](std::size_t i) { return a[i] + b[i]; });
    case Operation::kSubtract:
      return each(out, n, [=](std::size_t i) { return a[i] - b[i]; });
    case Operation::kMultiply:
      return each(out, n, [=](std::size_t i) { return a[i] * b[i]; });
    case Operation::kDivide:
      return each(out, n, [=](std::size_t i) { return a[i] / b[i]; });
    case Operation::kNegate:
      return each(out, n, [=](std::size_t i) { return -a[i]; });
    case Operation::kSqrt:
      return each(out, n, [=](std::size_t i) { return std::sqrt(a[i]); });
    case Operation::kAbs:
      return each(out, n, [=](std::size_t i) { return std::fabs(a[i]); });
    case Operation::kSign:
      return each(out, n, [=](std::size_t i) { return sign(a[i]); });
    case Operation::kMin:
      return each(out, n, [=](std::size_t i) { return a[i] < b[i] ? a[i] : b[i]; });
    case Operation::kMax:
      return each(out, n, [=](std::size_t i) { return a[i] > b[i] ? a[i] : b[i]; });
    case Operation::kSelect:
      return each(out, n, [=](std::size_t i) { return a[i] > 0 ? b[i] : c[i]; });
    default:
      STARLING_CHECK_MSG(false, "an operation of elements " << int(value.operation));
  }
}

struct Update {
  Formula formula;

  void operator()(const OwnStep& step, std::span<const float> gradient, std::span<float> weights,
                  std::span<float> first, std::span<float> second) const {
    const auto& values = formula.values;
    // Values of the step in double, and in float for elements; then a row of elements for each other one.
    thread_local std::vector<double> wide;
    thread_local std::vector<float> narrow, rows;
    wide.resize(values.size());
    narrow.resize(values.size());
    rows.resize(values.size() * kAtOnce);
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (!values[k].of_step) continue;
      wide[k] = of_step(values[k], step, wide);
      narrow[k] = static_cast<float>(wide[k]);
    }
    for (std::size_t begin = 0; begin < gradient.size(); begin += kAtOnce) {
      const std::size_t n = std::min(kAtOnce, gradient.size() - begin);
      const auto row = [&](std::size_t k) { return rows.data() + k * kAtOnce; };
      const auto argument = [&](const FormulaValue& value, std::size_t i) {
        const std::size_t k = value.of[i];
        return values[k].of_step ? Row{&narrow[k], 0} : Row{row(k), 1};
      };
      for (std::size_t k = 0; k < values.size(); ++k) {
        const FormulaValue& value = values[k];
        if (value.of_step) continue;
        float* const out = row(k);
        if (value.operation == Operation::kGradient)
          each(out, n, [&](std::size_t i) { return gradient[begin + i] * step.clip; });
        else if (value.operation == Operation::kWeight)
          std::copy_n(weights.data() + begin, n, out);
        else if (value.operation == Operation::kFirst)
          std::copy_n(first.data() + begin, n, out);
        else if (value.operation == Operation::kSecond)
          formula.moments == 2 ? std::copy_n(second.data() + begin, n, out) : out;
        else
          of_elements(value, n, out, argument(value, 0), argument(value, 1), argument(value, 2));
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
