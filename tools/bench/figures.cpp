#include "tools/bench/figures.h"

#include <algorithm>
#include <cmath>

namespace starling::bench {
namespace {

double distance_ms(const judge::Story& story, std::size_t i) {
  return 1000 * (story.step_lines[i].t - story.step_lines[i - 1].t);
}

// Returns the part of a stretch whose steps have a step before them.
Stretch measurable(const judge::Story& story, const Stretch& stretch) {
  return {std::max<std::size_t>(stretch.first, 1), std::min(stretch.last, story.step_lines.size())};
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(q * double(values.size())));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

double median_step_ms(const judge::Story& story, std::uint32_t world) {
  std::vector<double> ms;
  const auto like = [&](std::size_t i) { return story.step_lines[i].world == world; };
  for (std::size_t i = 2; i < story.step_lines.size(); ++i)
    if (like(i) && like(i - 1) && like(i - 2)) ms.push_back(distance_ms(story, i));
  return quantile(std::move(ms), 0.5);
}

Gap gap_after(const judge::Story& story, double t, std::uint32_t world, std::size_t steps) {
  Gap gap;
  bool there = false;
  std::size_t seen = 0;
  for (std::size_t i = 1; i < story.step_lines.size() && (seen < steps || !there); ++i) {
    const auto& step = story.step_lines[i];
    if (step.t <= t) continue;
    if (seen++ < steps) gap.longest = std::max(gap.longest, distance_ms(story, i));
    if (there || step.world != world) continue;
    there = true;
    gap.to_world = distance_ms(story, i);
  }
  return gap;
}

QuietSteps::QuietSteps(const judge::Story& story, const std::vector<Stretch>& quiet)
    : micro_batches_(story.start.micro_batches) {
  std::map<std::uint32_t, std::vector<double>> ms;
  for (const Stretch& stretch : quiet) {
    const Stretch steps = measurable(story, stretch);
    for (std::size_t i = steps.first; i < steps.last; ++i)
      ms[story.step_lines[i].world].push_back(distance_ms(story, i));
  }
  for (auto& [n, values] : ms) medians_[n] = quantile(std::move(values), 0.5);
}

double QuietSteps::rounds(std::uint32_t world) const {
  return world == 0 ? 0 : double((micro_batches_ + world - 1) / world);
}

double QuietSteps::ms(std::uint32_t world) const {
  if (const auto known = medians_.find(world); known != medians_.end()) return known->second;
  if (medians_.size() < 2 || world == 0) return 0;
  auto upper = medians_.upper_bound(world);
  if (upper == medians_.begin()) ++upper;
  if (upper == medians_.end()) --upper;
  const auto lower = std::prev(upper);
  const double from = rounds(lower->first), to = rounds(upper->first);
  if (from == to) return lower->second;
  return lower->second + (upper->second - lower->second) * (rounds(world) - from) / (to - from);
}

ChangeFigures change_figures(const judge::Story& story, const Stretch& stretch,
                             const QuietSteps& quiet) {
  ChangeFigures figures;
  const Stretch steps = measurable(story, stretch);
  if (steps.first >= steps.last) return figures;
  for (std::size_t i = steps.first; i < steps.last; ++i) {
    const double expected = quiet.ms(story.step_lines[i].world);
    figures.ms.push_back(distance_ms(story, i));
    if (expected > 0) figures.ratios.push_back(figures.ms.back() / expected);
  }
  const double from = story.step_lines[steps.first - 1].t;
  const double to = story.step_lines[steps.last - 1].t;
  for (const auto& epoch : story.epochs) {
    if (epoch.t <= from || epoch.t > to) continue;
    ++figures.epochs;
    if (epoch.kind == PlanKind::kForced) ++figures.forced;
  }
  return figures;
}

}  // namespace starling::bench
