#include "core/job/formula.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>

namespace starling {
namespace {

struct Function {
  std::string_view name;
  Operation operation;
  std::size_t arguments;
};
constexpr Function kFunctions[] = {
    {"sqrt", Operation::kSqrt, 1},  {"abs", Operation::kAbs, 1}, {"sign", Operation::kSign, 1},
    {"min", Operation::kMin, 2},    {"max", Operation::kMax, 2}, {"select", Operation::kSelect, 3},
    {"power", Operation::kPower, 2}};
constexpr int kDepthMax = 64;  // of parentheses and signs

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
std::string ticked(std::string_view text) {
  std::string out(1, '`');
  out += text.substr(0, 32);
  out += '`';
  return out;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::size_t arguments(Operation operation) {
  switch (operation) {
    case Operation::kAdd:
    case Operation::kSubtract:
    case Operation::kMultiply:
    case Operation::kDivide:
      return 2;
    case Operation::kNegate:
    case Operation::kPower:
      return 1;  // the exponent is no place
    default:
      for (const Function& one : kFunctions)
        if (one.operation == operation) return one.arguments;
      return 0;
  }
}

// Recursive descent, one line at a time. After the first error every function returns 0.
class Parser {
 public:
  Parser() {
    const std::pair<const char*, Operation> inputs[] = {
        {"g", Operation::kGradient}, {"w", Operation::kWeight},  {"m", Operation::kFirst},
        {"v", Operation::kSecond},   {"rate", Operation::kRate}, {"decay", Operation::kDecay},
        {"step", Operation::kStep}};
    for (const auto& [name, operation] : inputs) {
      const bool of_step = operation == Operation::kRate || operation == Operation::kDecay ||
                           operation == Operation::kStep;
      names_[name] = add({.operation = operation, .of_step = of_step});
    }
    step_ = names_["step"];
    second_ = names_["v"];
  }

  void line(std::string_view text) {
    ++line_;
    rest_ = text.substr(0, text.find('#'));
    blanks();
    if (rest_.empty()) return;
    const std::string name(word());
    if (name.empty() || !take('=')) return fail("expected a name and `=`");
    if (name == "g" || name == "rate" || name == "decay" || name == "step" || function(name))
      return fail(ticked(name) + " cannot be given a value");
    const std::uint16_t value = sum();
    if (!failure_ && !rest_.empty()) fail("unexpected " + ticked(rest_.substr(0, 16)));
    assigned_weight_ |= name == "w";
    names_[name] = value;
  }

  Result<Formula> made() {
    if (!failure_ && !assigned_weight_) fail_whole("no line gives `w` a value");
    if (failure_) return Error(Code::kBadInput, *failure_);
    Formula formula{std::move(values_), names_["w"], names_["m"], names_["v"], 1};
    bool reads = formula.second != second_;
    for (const FormulaValue& value : formula.values)
      for (std::size_t i = 0; i < arguments(value.operation); ++i) reads |= value.of[i] == second_;
    formula.moments = reads ? 2 : 1;
    for (const std::uint16_t place : {formula.weight, formula.first, formula.second})
      if (formula.values[place].of_step)
        return Error(Code::kBadInput, "`w`, `m` and `v` must depend on an element");
    return formula;
  }

  bool failed() const { return failure_.has_value(); }

 private:
  static const Function* function(std::string_view name) {
    for (const Function& one : kFunctions)
      if (one.name == name) return &one;
    return nullptr;
  }

  void fail_whole(const std::string& text) {
    if (!failure_) failure_ = text;
  }
  void fail(const std::string& text) { fail_whole("line " + std::to_string(line_) + ": " + text); }

  std::uint16_t add(const FormulaValue& value) {
    if (values_.size() >= kFormulaOperationsMax) {
      fail("more than " + std::to_string(kFormulaOperationsMax) + " operations and numbers");
      return 0;
    }
    values_.push_back(value);
    return static_cast<std::uint16_t>(values_.size() - 1);
  }

  std::uint16_t add(Operation operation, std::array<std::uint16_t, 3> of) {
    bool of_step = true;
    for (std::size_t i = 0; i < arguments(operation); ++i) of_step &= values_[of[i]].of_step;
    return add({.operation = operation, .of = of, .of_step = of_step});
  }

  void blanks() {
    while (!rest_.empty() &&
           (rest_.front() == ' ' || rest_.front() == '\t' || rest_.front() == '\r'))
      rest_.remove_prefix(1);
  }

  bool take(char c) {
    if (failure_ || rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    blanks();
    return true;
  }

  std::string_view word() {
    std::size_t n = 0;
    if (!rest_.empty() && is_letter(rest_[0]))
      while (n < rest_.size() && (is_letter(rest_[n]) || is_digit(rest_[n]))) ++n;
    const std::string_view found = rest_.substr(0, n);
    rest_.remove_prefix(n);
    blanks();
    return found;
  }

  std::uint16_t sum() {
    std::uint16_t left = product();
    while (!failure_) {
      if (take('+'))
        left = add(Operation::kAdd, {left, product()});
      else if (take('-'))
        left = add(Operation::kSubtract, {left, product()});
      else
        break;
    }
    return left;
  }

  std::uint16_t product() {
    std::uint16_t left = term();
    while (!failure_) {
      if (take('*'))
        left = add(Operation::kMultiply, {left, term()});
      else if (take('/'))
        left = add(Operation::kDivide, {left, term()});
      else
        break;
    }
    return left;
  }

  std::uint16_t term() {
    if (failure_) return 0;
    if (++depth_ > kDepthMax) {
      fail("more than " + std::to_string(kDepthMax) + " parentheses and signs in one another");
      return 0;
    }
    const std::uint16_t value = inner();
    --depth_;
    return value;
  }

  std::uint16_t inner() {
    if (take('-')) return add(Operation::kNegate, {term()});
    if (take('(')) {
      const std::uint16_t value = sum();
      if (!failure_ && !take(')')) fail("expected `)`");
      return value;
    }
    if (!rest_.empty() && (is_digit(rest_.front()) || rest_.front() == '.')) return number();
    const std::string name(word());
    if (name.empty()) {
      fail(rest_.empty() ? "expected a number, a name or `(` at its end"
                         : "expected a number, a name or `(`, is " + ticked(rest_.substr(0, 16)));
      return 0;
    }
    if (const Function* const called = function(name)) return call(*called);
    const auto known = names_.find(name);
    if (known == names_.end()) {
      fail(
          "unknown name `" + name.substr(0, 32) +
          "`, known are g, w, m, v, rate, decay, step, those of lines before it, and the functions "
          "sqrt, abs, sign, min, max, select, power");
      return 0;
    }
    return known->second;
  }

  std::uint16_t number() {
    double value = 0;
    const auto [end, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (code != std::errc{} || !std::isfinite(value)) {
      fail(ticked(rest_.substr(0, 16)) + " is no number");
      return 0;
    }
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    blanks();
    return add({.operation = Operation::kNumber, .number = value, .of_step = true});
  }

  std::uint16_t call(const Function& called) {
    std::array<std::uint16_t, 3> of{};
    if (!take('(')) fail("expected `(` after " + ticked(called.name));
    for (std::size_t i = 0; i < called.arguments && !failure_; ++i) {
      if (i > 0 && !take(',')) fail(count_of(called));
      of[i] = sum();
    }
    if (!failure_ && !take(')')) fail(count_of(called));
    if (failure_) return 0;
    return called.operation == Operation::kPower ? power(of[0], of[1]) : add(called.operation, of);
  }

  static std::string count_of(const Function& called) {
    return ticked(called.name) + " takes " + std::to_string(called.arguments) +
           (called.arguments == 1 ? " argument" : " arguments");
  }

  // The exponent has no place of its own; -1 stands for the step.
  std::uint16_t power(std::uint16_t base, std::uint16_t exponent) {
    const FormulaValue& how = values_[exponent];
    const bool whole = how.operation == Operation::kNumber &&
                       how.number == std::floor(how.number) && how.number >= 0 &&
                       how.number < 4294967296.0;
    if (!values_[base].of_step || (exponent != step_ && !whole)) {
      fail("`power` takes a number of the step, and `step` or a whole number from 0 to 4294967295");
      return 0;
    }
    return add({.operation = Operation::kPower,
                .of = {base},
                .number = exponent == step_ ? -1 : how.number,
                .of_step = true});
  }

  std::vector<FormulaValue> values_;
  std::map<std::string, std::uint16_t> names_;
  std::optional<std::string> failure_;
  std::string_view rest_;
  std::size_t line_ = 0;
  int depth_ = 0;
  std::uint16_t step_ = 0, second_ = 0;
  bool assigned_weight_ = false;
};

}  // namespace

Result<Formula> parse_formula(std::string_view text) {
  Parser parser;
  for (std::size_t at = 0; at <= text.size() && !parser.failed();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    parser.line(text.substr(at, end - at));
    at = end + 1;
  }
  return parser.made();
}

bool depends_on(const Formula& formula, Operation input) {
  std::vector<bool> depends;
  for (const FormulaValue& value : formula.values) {
    bool found = value.operation == input;
    for (std::size_t i = 0; i < arguments(value.operation); ++i)
      found = found || depends[value.of[i]];
    depends.push_back(found);
  }
  return depends[formula.weight] || depends[formula.first] || depends[formula.second];
}

}  // namespace starling
