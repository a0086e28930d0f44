#pragma once
// A formula is an optimizer's update in a job file, [optimizer].update with kind "elementwise": what becomes of one
// element of the weights and moments. Its operations are correctly rounded, so its bits are the same everywhere.
//
//   m = 0.99 * m + 0.01 * g
//   w = w - rate * (sign(0.9 * m + 0.1 * g) + decay * w)
//
// A line gives a name a value; `w`, `m` and `v` are, at the end, the new weight and moments. Names that are there:
// g (gradient, clipped), w, m, v (moments, which begin with 0), and of the step rate (the group's), decay
// (weight_decay of the tensor), step (1 is the first). What is of the step alone is computed in double, everything
// with an element in it in float. + - * / and - before a term, parentheses, and
//
//   sqrt(x) abs(x) sign(x) min(x, y) max(x, y)  of no number (NaN) no number
//   select(x, a, b)  a where x > 0, else b
//   power(x, step)   of a number of the step; the exponent is `step` or a whole number from 0 to 2^32 - 1

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace starling {

inline constexpr std::size_t kFormulaBytesMax = 8192;
inline constexpr std::size_t kFormulaOperationsMax = 256;

enum class Operation : std::uint8_t {
  kNumber,
  kGradient,
  kWeight,
  kFirst,
  kSecond,
  kRate,
  kDecay,
  kStep,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kNegate,
  kSqrt,
  kAbs,
  kSign,
  kMin,
  kMax,
  kSelect,
  kPower,
};

// The value of one operation, of those before it.
struct FormulaValue {
  Operation operation = Operation::kNumber;
  std::array<std::uint16_t, 3>
      of{};              // places of its arguments; each operation uses as many as it has
  double number = 0;     // kNumber; of kPower the exponent, -1: the step
  bool of_step = false;  // the same for all elements
  bool operator==(const FormulaValue&) const = default;
};

struct Formula {
  std::vector<FormulaValue> values;
  std::uint16_t weight = 0, first = 0, second = 0;  // places of the new ones
  unsigned moments = 1;                             // 2: it has v
};

// Errors: kBadInput  "line 2: ..", with what was expected.
Result<Formula> parse_formula(std::string_view text);

// Whether a new weight or moment is made of this input, kRate or another one.
bool depends_on(const Formula& formula, Operation input);

}  // namespace starling
