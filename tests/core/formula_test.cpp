#include "core/job/formula.h"

#include <doctest/doctest.h>

#include <iterator>
#include <random>
#include <string>
#include <utility>

#include "tests/core/job_text.h"

namespace starling {
namespace {

std::string error_in(const std::string& text) {
  const auto formula = parse_formula(text);
  return formula ? "" : formula.error().text();
}

TEST_CASE("formula: lines give values to names, what is of the step alone is known to be") {
  const auto formula =
      parse_formula("# a comment\n\n  half = rate / 2  # of the step\r\nw = w - half * g\n");
  REQUIRE_MESSAGE(formula, formula.error().text());
  CHECK(formula.value().moments == 1);
  std::size_t of_step = 0;
  for (const FormulaValue& value : formula.value().values) of_step += value.of_step;
  CHECK(of_step == 5);  // rate, decay, step, 2 and half
  CHECK(formula.value().values[formula.value().weight].operation == Operation::kSubtract);
  CHECK(formula.value().values[formula.value().first].operation == Operation::kFirst);
}

TEST_CASE("formula: a second moment is there if v is read or given a value") {
  CHECK(parse_formula("w = w - g").value().moments == 1);
  CHECK(parse_formula("w = w - v").value().moments == 2);
  CHECK(parse_formula("v = g\nw = w - g").value().moments == 2);
  CHECK(parse_formula("u = v\nv = u\nw = w - g").value().moments == 1);  // it stays what it was
}

TEST_CASE("formula: products bind more than sums, and both to the left") {
  const Formula formula = parse_formula("w = w - g - m * g / rate").value();
  const auto& values = formula.values;
  const auto operation = [&](std::size_t place) { return values[place].operation; };
  const FormulaValue& last = values[formula.weight];
  CHECK(last.operation == Operation::kSubtract);
  CHECK(operation(last.of[0]) == Operation::kSubtract);
  CHECK(operation(last.of[1]) == Operation::kDivide);
  CHECK(operation(values[last.of[1]].of[0]) == Operation::kMultiply);
}

TEST_CASE("formula: what is wrong is told with its line") {
  const std::pair<std::string, const char*> cases[] = {
      {"m = g", "no line gives `w` a value"},
      {"w = w -", "line 1: expected a number, a name or `(` at its end"},
      {"w = w\nx", "line 2: expected a name and `=`"},
      {"w = (w - g", "line 1: expected `)`"},
      {"w = w g", "line 1: unexpected `g`"},
      {"w = w - q", "line 1: unknown name `q`, known are g, w, m, v, rate, decay, step"},
      {"rate = 3\nw = w - g", "line 1: `rate` cannot be given a value"},
      {"sqrt = g\nw = w - g", "line 1: `sqrt` cannot be given a value"},
      {"w = sqrt w", "line 1: expected `(` after `sqrt`"},
      {"w = min(w)", "line 1: `min` takes 2 arguments"},
      {"w = sqrt(w, g)", "line 1: `sqrt` takes 1 argument"},
      {"w = w * power(w, 2)", "line 1: `power` takes a number of the step, and `step` or a whole"},
      {"w = w * power(rate, 0.5)", "line 1: `power` takes"},
      {"w = w * power(rate, -step)", "line 1: `power` takes"},
      {"w = 1e999 * w", "line 1: `1e999 * w` is no number"},
      {"w = rate", "`w`, `m` and `v` must depend on an element"},
      {"w = w - g $ 2", "line 1: unexpected `$ 2`"},
      {"w = " + std::string(100, '(') + "w", "more than 64 parentheses"},
      {"w = w" + std::string(130, '+') + "w", "line 1: expected a number, a name or `(`, is `+"},
  };
  for (const auto& [text, wanted] : cases) {
    const std::string error = error_in(text);
    CHECK_MESSAGE(error.find(wanted) != std::string::npos, text, ": ", error);
  }
  std::string many = "w = w";
  for (int i = 0; i < 300; ++i) many += " + g";
  CHECK(error_in(many).find("more than 256 operations and numbers") != std::string::npos);
}

// Goal: no text of a job file ends the program or takes more than its bounds.
TEST_CASE("formula: any bytes are read or refused") {
  const std::string parts[] = {"w",    "m",     "=", "\n",  "(",    ")", "-",
                               "sqrt", "power", ",", "1.5", "step", " ", "#"};
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string text = i % 2 == 0 ? "w = w - rate * g / (sqrt(v) + 1e-8)\n" : "";
    for (std::size_t n = random() % 24; n > 0; --n) {
      const std::string part =
          random() % 8 == 0 ? std::string(1, char(random())) : parts[random() % std::size(parts)];
      text.insert(random() % (text.size() + 1), part);
    }
    const auto formula = parse_formula(text);
    if (formula) CHECK(formula.value().values.size() <= kFormulaOperationsMax);
  }
}

TEST_CASE("formula: what the new values are made of is known") {
  const Formula formula =
      parse_formula("unused = decay * w\nhalf = rate / 2\nm = half * g\nw = w - g").value();
  CHECK(depends_on(formula, Operation::kRate));
  CHECK(depends_on(formula, Operation::kGradient));
  CHECK(!depends_on(formula, Operation::kDecay));
  CHECK(!depends_on(formula, Operation::kStep));
}

// Goal: a job file is refused whose formula ignores its rate, schedule or weight_decay.
TEST_CASE("formula: job files have one that is made of what they say") {
  const auto error = [](const std::string& update, const std::string& more) {
    return error_of(replaced(kGood, "kind = \"adamw\"",
                             "kind = \"elementwise\"\nupdate = \"" + update + "\"\n" + more));
  };
  const std::string unread = "update: nothing is made of `decay`, and weight_decay would change";
  CHECK(error("w = w - 0.1 * g", "").find("update: nothing is made of `rate`") !=
        std::string::npos);
  CHECK(error("w = w - rate * g", "weight_decay = 0.1").find(unread) != std::string::npos);
  CHECK(error("w = w - rate * g", "groups = [{ tensors = [\"*\"], weight_decay = 0.1 }]")
            .find(unread) != std::string::npos);
  CHECK(error("w = w - rate * g", "groups = [{ tensors = [\"*\"], weight_decay = 0.0 }]") ==
        "no error");
  CHECK(error("w = w - rate * (g + decay * w)", "weight_decay = 0.1") == "no error");
}

TEST_CASE("formula: job files have it, and hashes") {
  const std::string text =
      replaced(kGood, "kind = \"adamw\"",
               "kind = \"elementwise\"\nupdate = \"\"\"\nm = g\nw = w - rate * m\n\"\"\"");
  const auto job = parse_job(text, ".");
  REQUIRE_MESSAGE(job, job.error().text());
  CHECK(job.value().optimizer.kind == OptimizerKind::kElementwise);
  CHECK(job.value().optimizer.update == "m = g\nw = w - rate * m\n");
  CHECK(parse_job(format_job(job.value()), "/").value() == job.value());
  CHECK(state_hash(job.value()) !=
        state_hash(parse_job(replaced(text, "m = g", "m = -g"), ".").value()));
  CHECK(error_of(replaced(text, "m = g", "m = h")).find("update: line 1: unknown name `h`") !=
        std::string::npos);
  CHECK(error_of(replaced(kGood, "kind = \"adamw\"", "kind = \"adamw\"\nupdate = \"w = g\""))
            .find("update does not apply to kind \"adamw\"") != std::string::npos);
}

}  // namespace
}  // namespace starling
