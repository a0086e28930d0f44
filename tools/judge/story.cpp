#include "tools/judge/story.h"

#include <algorithm>
#include <chrono>

namespace starling::judge {

std::string name_of(const Story& story, std::uint64_t id) {
  const auto seen = std::ranges::find(story.workers, id, &event::WorkerChanged::id);
  return seen == story.workers.end() ? "worker " + std::to_string(id) : seen->name;
}

bool is_member(const event::EpochFormed& epoch, std::uint64_t worker) {
  return std::ranges::find(epoch.members, worker, &event::EpochMember::id) != epoch.members.end();
}

std::vector<std::vector<std::uint64_t>> holders_by_segment(const event::EpochFormed& epoch) {
  constexpr std::uint64_t kSegmentsMax = 1u << 22;  // of any job; more is damage
  std::vector<std::vector<std::uint64_t>> by_segment;
  for (std::size_t rank = 0; rank < epoch.holders.size() && rank < epoch.members.size(); ++rank)
    for (const SegmentRange& range : epoch.holders[rank]) {
      const std::uint64_t end = std::uint64_t{range.first} + range.count;
      if (end > kSegmentsMax) continue;
      if (by_segment.size() < end) by_segment.resize(end);
      for (const SegmentId s : range) by_segment[s].push_back(epoch.members[rank].id);
    }
  return by_segment;
}

std::map<Version, Told<event::StepPassed>> Story::committed() const {
  std::map<Version, Told<event::StepPassed>> first;
  for (const auto& step : step_lines) first.emplace(step.record.version, step);
  return first;
}

std::map<Version, Told<event::Evaluated>> Story::evaluations() const {
  std::map<Version, Told<event::Evaluated>> first;
  for (const auto& evaluation : evaluation_lines) first.emplace(evaluation.version, evaluation);
  return first;
}

std::optional<double> Story::end_t() const {
  if (done) return done->t;
  return failed ? std::optional<double>(failed->t) : std::nullopt;
}

double Story::now() const {
  using std::chrono::nanoseconds;
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return started ? 1e-9 * double(std::chrono::duration_cast<nanoseconds>(since).count() -
                                 start.monotonic_ns)
                 : 0;
}

double Story::median_step_ms() const {
  std::vector<double> ms;
  for (const auto& step : step_lines)
    if (step.record.version >= 2) ms.push_back(step.ms);
  return median(std::move(ms));
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace starling::judge
