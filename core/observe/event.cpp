#include "core/observe/event.h"

#include <algorithm>

namespace starling {
namespace {

// Lists, per rank, the segments that it holds.
std::vector<std::vector<SegmentRange>> holders_of(const Plan& plan) {
  std::vector<std::vector<SegmentRange>> ranges(plan.members.size());
  for (SegmentId s = 0; s < plan.holders.size(); ++s) {
    for (const Rank rank : plan.holders[s]) {
      if (rank >= ranges.size()) continue;
      auto& mine = ranges[rank];
      if (!mine.empty() && mine.back().past() == s)
        ++mine.back().count;
      else
        mine.push_back({s, 1});
    }
  }
  return ranges;
}

std::vector<std::uint32_t> owned_of(const Plan& plan) {
  std::vector<std::uint32_t> owned(plan.members.size());
  for (const auto& holders : plan.holders)
    if (!holders.empty() && holders.front() < owned.size()) ++owned[holders.front()];
  return owned;
}

}  // namespace

const char* kind_of(const Event& event) {
  return std::visit([](const auto& e) { return e.kKind; }, event);
}

namespace event {

EpochFormed formed(const Plan& plan) {
  EpochFormed epoch;
  epoch.id = plan.id;
  epoch.kind = plan.kind;
  epoch.predecessor = plan.predecessor;
  for (const Member& m : plan.members)
    epoch.members.push_back({m.who.counter, m.name, m.joiner, m.draining, m.role});
  if (plan.kind != PlanKind::kPrepared) {
    epoch.base = plan.base;
    epoch.begin = plan.begin;
  }
  epoch.cause = plan.cause;
  epoch.holders = holders_of(plan);
  epoch.owned = owned_of(plan);
  epoch.moves = plan.moves.size();
  return epoch;
}

std::optional<Evaluated> evaluated(Version version, const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return Evaluated{version, values.front(), {values.begin() + 1, values.end()}};
}

StepPassed step_of(const Progress& progress) {
  return {progress.record,   progress.epoch,     progress.world,
          progress.step_ms,  progress.on_device, {},
          progress.peak_rate};
}

LedgerPassed ledger_of(const Progress& progress) {
  LedgerPassed ledger{progress.record.version, progress.epoch, {}};
  ledger.workers.reserve(progress.ledger.size());
  for (const LedgerRow& row : progress.ledger)
    ledger.workers.emplace_back(row.micro_batch, row.worker);
  std::sort(ledger.workers.begin(), ledger.workers.end());
  return ledger;
}

NoticeGiven given(const Incarnation& who, const std::string& name, const Notice& notice) {
  NoticeGiven given{who.counter, name, notice.source, notice.leave, {}, notice.text};
  if (notice.leave) given.seconds = double(notice.notice_ms) / 1e3;
  return given;
}

}  // namespace event
}  // namespace starling
