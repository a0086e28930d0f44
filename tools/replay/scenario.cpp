#include "tools/replay/scenario.h"

#include <algorithm>
#include <map>

namespace starling::replay {
namespace {

chaos::Fault fault_of(const chaos::FaultKind& kind, double at_s, std::vector<std::string> nodes) {
  chaos::Fault fault;
  fault.kind = &kind;
  fault.at_s = at_s;
  fault.count = static_cast<std::uint32_t>(nodes.size());
  fault.nodes = std::move(nodes);
  return fault;
}

}  // namespace

Result<chaos::Plan> plan_of(const Trace& trace, const Stretch& stretch) {
  namespace faults = chaos::faults;
  chaos::Plan plan;
  plan.nodes = trace.present(stretch.from_ms);
  plan.workers = static_cast<std::uint32_t>(plan.nodes.size());
  if (plan.nodes.empty())
    return Error(Code::kBadInput, "nobody is there at " + std::to_string(stretch.from_ms / 1000) +
                                      " s of the trace, expected a time with nodes");
  std::map<std::string, double> came;  // nodes that were there at the start come at 0
  for (const Change& change : trace.changes) {
    if (change.at_ms <= stretch.from_ms || change.at_ms > stretch.to_ms) continue;
    const double at = stretch.at_s(change.at_ms);
    if (!change.added.empty()) {
      plan.faults.push_back(fault_of(faults::kJoin, at, change.added));
      for (const std::string& node : change.added) came[node] = at;
    }
    if (change.removed.empty()) continue;
    if (!stretch.notice_s) {
      plan.faults.push_back(fault_of(faults::kKill, at, change.removed));
      continue;
    }
    std::map<double, std::vector<std::string>> told;  // nodes that get notice at one time
    for (const std::string& node : change.removed)
      told[std::max(at - *stretch.notice_s / stretch.speedup, came[node])].push_back(node);
    for (auto& [when, nodes] : told) {
      plan.faults.push_back(fault_of(faults::kLeave, when, std::move(nodes)));
      plan.faults.back().for_s = at - when;
    }
  }
  std::stable_sort(plan.faults.begin(), plan.faults.end(),
                   [](const auto& a, const auto& b) { return a.at_s < b.at_s; });
  return plan;
}

std::vector<judge::Point> nodes_over_time(const Trace& trace, const Stretch& stretch) {
  double now = double(trace.present(stretch.from_ms).size());
  std::vector<judge::Point> points{{0, now}};
  for (const Change& change : trace.changes) {
    if (change.at_ms <= stretch.from_ms || change.at_ms > stretch.to_ms) continue;
    now += double(change.added.size()) - double(change.removed.size());
    points.push_back({stretch.at_s(change.at_ms), now});
  }
  return points;
}

}  // namespace starling::replay
