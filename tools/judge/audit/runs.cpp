#include "tools/judge/audit/runs.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace starling::audit {
namespace {

// Highest has the highest numbers of a run.
struct Highest {
  EpochId epoch;
  std::uint64_t worker = 0;
};

void look(const History& h, Highest& highest) {
  for (const EpochFact& epoch : h.epochs) {
    highest.epoch = std::max(highest.epoch, epoch.id);
    for (const std::uint64_t id : epoch.members) highest.worker = std::max(highest.worker, id);
  }
  for (const StepFact& step : h.steps) highest.epoch = std::max(highest.epoch, step.epoch);
  for (const auto& [id, name] : h.names) highest.worker = std::max(highest.worker, id);
}

void move_above(const Highest& before, History& h) {
  const auto epoch = [&](EpochId& id) {
    if (id) id.term += before.epoch.term;
  };
  for (StepFact& step : h.steps) epoch(step.epoch);
  for (LedgerFact& ledger : h.ledgers) {
    epoch(ledger.epoch);
    for (auto& [m, worker] : ledger.rows) worker += before.worker;
  }
  for (EpochFact& e : h.epochs) {
    epoch(e.id);
    epoch(e.predecessor);
    for (std::uint64_t& id : e.members) id += before.worker;
  }
  for (ExposureFact& exposure : h.exposures) epoch(exposure.epoch);
  for (TaintFact& taint : h.taints) taint.worker += before.worker;
  for (MismatchFact& mismatch : h.mismatches) {
    mismatch.worker += before.worker;
    mismatch.by += before.worker;
    if (mismatch.wrong) *mismatch.wrong += before.worker;
  }
  for (RestartFact& restart : h.restarts) epoch(restart.lost);
  std::map<std::uint64_t, std::string> names;
  for (auto& [id, name] : h.names) names.emplace(id + before.worker, std::move(name));
  h.names = std::move(names);
  for (auto* ids : {&h.lost, &h.left_out, &h.left}) {
    std::set<std::uint64_t> moved;
    for (const std::uint64_t id : *ids) moved.insert(id + before.worker);
    *ids = std::move(moved);
  }
}

// A run that failed before its first step has added nothing to the others.
void leave_out_empty_ones(std::vector<History>& histories) {
  const auto empty = [](const History& h) {
    return h.failed && h.steps.empty() && h.done.empty() && h.start.coordinator.empty();
  };
  if (!std::ranges::all_of(histories, empty)) std::erase_if(histories, empty);
}

// Whether lists of coordinators' addresses are of one group: one that was added later may have a longer one.
bool of_one_group(const std::string& a, const std::string& b) {
  const auto& [shorter, longer] = std::minmax(
      a, b, [](const std::string& x, const std::string& y) { return x.size() < y.size(); });
  if (longer == shorter) return true;
  return !shorter.empty() && longer.starts_with(shorter + ",");
}

}  // namespace

bool of_one_run(const History& a, const History& b) {
  const bool view = !a.start.coordinator.empty() || !b.start.coordinator.empty();
  return a.start.from == b.start.from && of_one_group(a.start.address, b.start.address) &&
         (view || a.start.monotonic_ns == b.start.monotonic_ns);
}

void one_after_the_other(std::vector<History>& histories) {
  leave_out_empty_ones(histories);
  std::stable_sort(histories.begin(), histories.end(),
                   [](const History& a, const History& b) { return a.start.from < b.start.from; });
  Highest before, now;
  bool in_order = false;  // the run before ended in order, or was done
  for (std::size_t i = 0; i < histories.size(); ++i) {
    History& h = histories[i];
    const bool later = i > 0 && !of_one_run(histories[i - 1], h);
    if (later) before = now;
    move_above(before, h);
    if (later) {
      h.restarts.insert(h.restarts.begin(), RestartFact{h.start.from, before.epoch, h.start.line,
                                                        /*by_people=*/in_order});
      in_order = false;
    }
    // Only the last run's end was the end.
    look(h, now);
    in_order = in_order || h.ended || !h.done.empty();
  }
}

}  // namespace starling::audit
