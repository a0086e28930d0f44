#include "elastic/membership/chronicle.h"

#include <utility>

#include "elastic/protocol/plan.h"

namespace starling::elastic {
namespace {

using Kind = Observation::Kind;

void tell_of(const Group& group, const Incarnation& who, const char* what,
             std::vector<Observation>& told) {
  const auto* worker = group.find(who);
  if (!worker) return;
  Observation seen;
  seen.kind = Kind::kWorker;
  seen.of_log = true;
  seen.what = what;
  seen.who = worker->join.who;
  seen.name = worker->join.name;
  seen.pid = worker->join.pid;
  told.push_back(std::move(seen));
}

void tell_of(const Group& group, const Plan& plan, std::vector<Observation>& told) {
  Observation epoch;
  epoch.kind = Kind::kEpoch;
  epoch.of_log = true;
  epoch.plan = plan;
  epoch.detect_ms = epoch.form_ms = epoch.resume_ms = -1;
  told.push_back(std::move(epoch));
  if (!group.predecessor()) return;
  for (const Member& m : group.predecessor()->members) {
    const auto* worker = group.find(m.who);
    if (!worker || worker->dead || rank_in(plan, m.who) != kNoRank) continue;
    tell_of(group, m.who, worker->leaving ? "left" : "fenced", told);
  }
}

}  // namespace

std::vector<Observation> told_of(const Group& group, const Entry& entry) {
  // Coordinator::tell() has what every coordinator tells, leading or not. A leave is told when a plan
  // leaves its worker out.
  static_assert(kAllKinds<Entry, Joined, Lost, Plan, /*not here:*/ JobStarted, LeaveAnnounced,
                          JobEnded, Published, Damaged, Restarted>);
  std::vector<Observation> told;
  if (const auto* joined = std::get_if<Joined>(&entry))
    tell_of(group, joined->join.who, "joined", told);
  else if (const auto* lost = std::get_if<Lost>(&entry))
    tell_of(group, lost->who, "lost", told);
  else if (const auto* plan = std::get_if<Plan>(&entry))
    tell_of(group, *plan, told);
  return told;
}

}  // namespace starling::elastic
