#include "elastic/membership/group.h"

#include <algorithm>

namespace starling::elastic {

bool Group::apply(const Entry& entry) {
  if (end_) return false;
  return std::visit([this](const auto& e) { return take(e); }, entry);
}

bool Group::take(const JobStarted& job) {
  if (job_) return false;
  job_ = job;
  checkpoints_ = job.checkpoints;
  if (!checkpoints_.empty()) start_ = last_base_ = checkpoints_.back().version;
  return true;
}

bool Group::take(const Joined& joined) {
  Worker worker{joined.join};
  worker.join.who.counter = next_counter_;
  const bool added = workers_.emplace(joined.join.who.nonce, worker).second;
  if (added) ++next_counter_;
  return added;
}

bool Group::take(const LeaveAnnounced& leave) {
  const auto it = workers_.find(leave.who.nonce);
  if (it == workers_.end() || it->second.leaving) return false;
  return it->second.leaving = true;
}

bool Group::take(const Lost& lost) {
  const auto it = workers_.find(lost.who.nonce);
  if (it == workers_.end() || it->second.dead || !lost.certain) return false;
  return it->second.dead = true;
}

// R10: a plan is void if its predecessor is not the last valid plan.
bool Group::take(const Plan& plan) {
  const EpochId last = plan_ ? plan_->id : EpochId{};
  if (plan.predecessor != last && !bugs_.r10_ignore_predecessor) return false;
  if (plan.id <= last) return false;
  if (restart_ && plan.kind != PlanKind::kFresh) return false;
  restart_.reset();
  before_ = std::exchange(plan_, plan);
  if (plan.kind != PlanKind::kPrepared) last_base_ = plan.base;
  if (plan.kind == PlanKind::kFresh) last_fresh_ = plan.id;
  auto& members = history_[plan.id];
  for (const Member& member : plan.members) {
    members.insert(member.who.nonce);
    const auto it = workers_.find(member.who.nonce);
    if (it != workers_.end()) it->second.planned = true;
  }
  return true;
}

bool Group::take(const JobEnded& end) {
  end_ = end;
  return true;
}

bool Group::take(const Published& published) {
  const auto same = [&](const Checkpoint& c) { return c.version == published.checkpoint.version; };
  std::erase_if(checkpoints_, same);
  checkpoints_.push_back(published.checkpoint);
  std::sort(checkpoints_.begin(), checkpoints_.end(),
            [](const auto& a, const auto& b) { return a.version < b.version; });
  std::erase_if(checkpoints_, [&](const auto& c) { return c.version < published.oldest; });
  return true;
}

bool Group::take(const Damaged& damaged) {
  return std::erase_if(checkpoints_, [&](const auto& c) { return c.version == damaged.version; }) !=
         0;
}

// As R10: void if the plan that it ends is not the last valid one; and if a newer checkpoint was
// published, or this one found damaged, while it was under way.
bool Group::take(const Restarted& restarted) {
  if (!plan_ || plan_->id != restarted.lost || restart_) return false;
  if (checkpoints_.empty() || checkpoints_.back().version != restarted.version) return false;
  restart_ = restarted;
  start_ = last_base_ = restarted.version;
  return true;
}

bool Group::can_start() const {
  return start_ == 0 || std::any_of(checkpoints_.begin(), checkpoints_.end(),
                                    [&](const auto& c) { return c.version == start_; });
}

const Group::Worker* Group::find(const Incarnation& who) const {
  const auto it = workers_.find(who.nonce);
  return it == workers_.end() ? nullptr : &it->second;
}

bool Group::was_member(const EpochId& epoch, const Incarnation& who) const {
  const auto it = history_.find(epoch);
  return it != history_.end() && it->second.count(who.nonce) != 0;
}

}  // namespace starling::elastic
