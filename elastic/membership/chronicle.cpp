#include "elastic/membership/chronicle.h"

#include <utility>

#include "elastic/protocol/plan.h"

namespace starling::elastic {
namespace {

void tell_of(const Group& group, const Incarnation& who, WorkerChange what,
             std::vector<Event>& told) {
  if (const auto* worker = group.find(who)) {
    const Join& join = worker->join;
    event::WorkerChanged changed{join.who.counter, what, join.name, join.pid};
    if (what == WorkerChange::kJoined) changed.machine = join.machine;
    told.push_back(std::move(changed));
  }
}

void tell_of(const Group& group, const Plan& plan, std::vector<Event>& told) {
  told.push_back(event::formed(plan));
  if (!group.predecessor()) return;
  for (const Member& m : group.predecessor()->members) {
    const auto* worker = group.find(m.who);
    if (!worker || worker->dead || rank_in(plan, m.who)) continue;
    tell_of(group, m.who, worker->leaving ? WorkerChange::kLeft : WorkerChange::kFenced, told);
  }
}

}  // namespace

std::vector<Event> told_of(const Group& group, const Entry& entry) {
  // Coordinator::tell_all() has what every coordinator tells, leading or not. The plan that leaves
  // a worker out tells its leave.
  static_assert(kAllKinds<Entry, Joined, Lost, Plan, /*not here:*/ JobStarted, LeaveAnnounced,
                          JobEnded, Published, Damaged, Restarted, CoordinatorAt>);
  std::vector<Event> told;
  if (const auto* joined = std::get_if<Joined>(&entry))
    tell_of(group, joined->join.who, WorkerChange::kJoined, told);
  else if (const auto* lost = std::get_if<Lost>(&entry))
    tell_of(group, lost->who, WorkerChange::kLost, told);
  else if (const auto* plan = std::get_if<Plan>(&entry))
    tell_of(group, *plan, told);
  return told;
}

}  // namespace starling::elastic
