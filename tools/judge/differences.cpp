#include "tools/judge/differences.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

namespace starling::judge {
namespace {

std::string bits_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return std::isfinite(value) ? text : "not finite";
}

using Named = std::pair<std::string, double>;

// A story has one NaN for all numbers that are not finite.
bool agree(const Named& a, const Named& b) {
  const bool both_nan = std::isnan(a.second) && std::isnan(b.second);
  return a.first == b.first && (a.second == b.second || both_nan);
}

std::vector<Named> numbered(std::vector<Named> numbers, const std::string& what,
                            const std::vector<double>& metrics) {
  for (std::size_t i = 0; i < metrics.size(); ++i)
    numbers.emplace_back(what + " " + std::to_string(i), metrics[i]);
  return numbers;
}
std::vector<Named> numbers_of(const event::StepPassed& step) {
  const StepRecord& record = step.record;
  return numbered({{"loss", record.loss}, {"norm", record.norm}}, "metric", record.metrics);
}
std::vector<Named> numbers_of(const event::Evaluated& evaluation) {
  return numbered({{"held-out loss", evaluation.loss}}, "held-out metric", evaluation.metrics);
}

// Compares what both runs tell, the earliest version first.
template <class E>
std::optional<Difference> first_of(const std::map<Version, E>& quiet,
                                   const std::map<Version, E>& loud) {
  for (const auto& [version, told] : loud) {
    const auto it = quiet.find(version);
    if (it == quiet.end()) continue;
    const auto expected = numbers_of(it->second), found = numbers_of(told);
    const std::string where = "step " + std::to_string(version) + " has ";
    if (expected.size() != found.size())
      return Difference{version, false,
                        where + count_of(found.size(), "number") + ", undisturbed " +
                            std::to_string(expected.size())};
    const auto [other, here] = std::ranges::mismatch(expected, found, agree);
    if (here != found.end())
      return Difference{version, here->first == "norm",
                        where + here->first + " " + bits_text(here->second) + ", undisturbed " +
                            bits_text(other->second)};
  }
  return std::nullopt;
}

}  // namespace

std::string count_of(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

std::optional<Difference> first_difference_of_steps(const Evidence& e) {
  if (!e.quiet) return std::nullopt;
  return first_of(e.quiet->committed(), e.loud.committed());
}

std::optional<Difference> first_difference(const Evidence& e) {
  auto of_steps = first_difference_of_steps(e);
  if (!e.quiet) return of_steps;
  auto of_evaluations = first_of(e.quiet->evaluations(), e.loud.evaluations());
  const bool first = of_evaluations && (!of_steps || of_evaluations->version <= of_steps->version);
  return first ? of_evaluations : of_steps;
}

std::string compared_text(const Story& loud) {
  const auto steps = loud.committed();
  const bool metrics = std::ranges::any_of(
      steps, [](const auto& step) { return !step.second.record.metrics.empty(); });
  const std::size_t evaluations = loud.evaluations().size();
  return std::string(metrics ? "losses, norms and metrics of " : "losses and norms of ") +
         count_of(steps.size(), "step") +
         (evaluations > 0 ? ", " + count_of(evaluations, "evaluation") : "");
}

}  // namespace starling::judge
