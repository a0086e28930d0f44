#include "elastic/membership/group.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/wire/limits.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {

bool Group::apply(const Entry& entry) {
  if (end_) return false;
  forget_lives();  // before, so that the observers of this entry still find its life
  const bool valid = std::visit([this](const auto& e) { return take(e); }, entry);
  check_invariants();
  return valid;
}

bool Group::take(const JobStarted& job) {
  if (job_) return false;
  job_ = job;
  checkpoints_ = job.checkpoints;
  if (!checkpoints_.empty()) start_ = last_base_ = checkpoints_.back().version;
  return true;
}

bool Group::take(const Joined& joined) {
  Worker worker;
  worker.join = joined.join;
  worker.since = plans_;
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
  ++plans_;
  before_ = std::exchange(plan_, plan);
  if (plan.kind != PlanKind::kPrepared) last_base_ = plan.base;
  if (plan.kind == PlanKind::kFresh) last_fresh_ = plan.id;
  auto& members = history_[plan.id];
  for (const Member& member : plan.members) {
    members.insert(member.who.nonce);
    const auto it = workers_.find(member.who.nonce);
    if (it != workers_.end()) it->second.planned = true;
  }
  forget_epochs();
  return true;
}

// A place belongs to the first life that it is given to: two processes in one place would be two voters with one name.
bool Group::take(const CoordinatorAt& seat) {
  if (seat.place >= limits::kSeats) return false;
  const auto [at, fresh] = seats_.try_emplace(seat.place, seat);
  if (fresh) return true;
  if (at->second.life != seat.life || at->second == seat) return false;
  at->second = seat;
  return true;
}

// A report names the epoch that its sender entered last. Members of a fresh or forced plan promised
// with the report that made them members to enter no other plan below its id (R9), so of earlier
// epochs they can name only those that they had entered then. A prepared plan is made when all
// members have been seen in its predecessor, so they name that one or a later one.
void Group::forget_epochs() {
  const Plan& last = *plan_;
  std::erase_if(history_, [&](const auto& epoch) {
    const EpochId& id = epoch.first;
    if (id == last.id || id == last_fresh_) return false;
    if (last.kind == PlanKind::kPrepared) return id != last.predecessor;
    return std::find(last.entered.begin(), last.entered.end(), id) == last.entered.end();
  });
}

// Keeps, of the lives that are over, the newest and those in the last two plans; of the lives that
// wait for a plan, as many as a plan may have.
void Group::forget_lives() {
  std::vector<std::uint64_t> over, waiting;  // counters
  for (const auto& [nonce, worker] : workers_) {
    const Incarnation& who = worker.join.who;
    if (plan_ && rank_in(*plan_, who)) continue;
    if (before_ && rank_in(*before_, who)) continue;
    const bool passed_over = plans_ - worker.since > kPassedOver;
    const bool waits = !worker.planned && !worker.dead && !worker.leaving && !passed_over;
    (waits ? waiting : over).push_back(who.counter);
  }
  std::set<std::uint64_t> gone;
  const auto drop_oldest = [&](std::vector<std::uint64_t>& counters, std::size_t keep) {
    std::sort(counters.begin(), counters.end());
    for (std::size_t i = 0; i + keep < counters.size(); ++i) gone.insert(counters[i]);
  };
  drop_oldest(over, kRemembered);
  drop_oldest(waiting, limits::kMembers);
  if (gone.empty()) return;
  std::erase_if(workers_, [&](const auto& w) { return gone.count(w.second.join.who.counter); });
  for (auto& [id, members] : history_)
    std::erase_if(members, [&](Nonce nonce) { return !workers_.count(nonce); });
}

bool Group::forgotten(const Incarnation& who) const {
  return who.counter != 0 && who.counter < next_counter_ && !find(who);
}

GroupState Group::state() const {
  GroupState state;
  state.job = job_;
  state.plan = plan_;
  state.before = before_;
  state.end = end_;
  for (const auto& [nonce, worker] : workers_) state.lives.push_back(worker);
  for (const auto& [id, members] : history_)
    state.epochs.push_back({id, {members.begin(), members.end()}});
  state.next_counter = next_counter_;
  state.plans = plans_;
  state.last_base = last_base_;
  state.last_fresh = last_fresh_;
  state.checkpoints = checkpoints_;
  state.start = start_;
  state.restart = restart_;
  state.reached = reached_;
  for (const auto& [place, seat] : seats_) state.seats.push_back(seat);
  return state;
}

void Group::restore(GroupState state) {
  job_ = std::move(state.job);
  plan_ = std::move(state.plan);
  before_ = std::move(state.before);
  end_ = std::move(state.end);
  workers_.clear();
  for (Worker& worker : state.lives) workers_.emplace(worker.join.who.nonce, std::move(worker));
  history_.clear();
  for (const auto& epoch : state.epochs)
    history_.emplace(epoch.id, std::set<Nonce>(epoch.nonces.begin(), epoch.nonces.end()));
  next_counter_ = state.next_counter;
  plans_ = state.plans;
  last_base_ = state.last_base;
  last_fresh_ = state.last_fresh;
  checkpoints_ = std::move(state.checkpoints);
  start_ = state.start;
  restart_ = std::move(state.restart);
  reached_ = state.reached;
  seats_.clear();
  for (CoordinatorAt& seat : state.seats) seats_.emplace(seat.place, std::move(seat));
  check_invariants();
}

// Checks what holds after each call, for any log.
void Group::check_invariants() const {
  STARLING_CHECK(plan_.has_value() == (plans_ != 0));
  if (plan_) STARLING_CHECK(history_.count(plan_->id) == 1);
  if (before_) STARLING_CHECK(plan_.has_value());
  if (before_) STARLING_CHECK(before_->id < plan_->id);
  if (last_fresh_) STARLING_CHECK(history_.count(last_fresh_) == 1);
  // A restart ends the last plan, and names the version that the next one begins with.
  if (restart_) STARLING_CHECK(plan_.has_value());
  if (restart_) STARLING_CHECK(restart_->lost == plan_->id);
  if (restart_) STARLING_CHECK(restart_->version == start_);
  STARLING_CHECK(history_.size() <= limits::kMembers + 4);
  STARLING_CHECK(workers_.size() <= limits::kLives);
  STARLING_CHECK(
      std::is_sorted(checkpoints_.begin(), checkpoints_.end(),
                     [](const auto& a, const auto& b) { return a.version < b.version; }));
  for (const auto& [nonce, worker] : workers_) {
    STARLING_CHECK(worker.join.who.nonce == nonce);
    STARLING_CHECK(worker.join.who.counter < next_counter_);
  }
}

Ended ended(const JobEnded& end) {
  return {end.exit_code, end.reason, end.digest, end.loss, end.parameters};
}

bool Group::take(const JobEnded& end) {
  end_ = end;
  return true;
}

// A publication may take the place of its own version, which says a doubt; one that was removed
// meanwhile stays so.
bool Group::take(const Published& published) {
  const Version version = published.checkpoint.version;
  const auto same = [&](const Checkpoint& c) { return c.version == version; };
  const bool replaced = std::erase_if(checkpoints_, same) != 0;
  if (!replaced && !checkpoints_.empty() && version < checkpoints_.back().version) return false;
  checkpoints_.push_back(published.checkpoint);
  std::sort(checkpoints_.begin(), checkpoints_.end(),
            [](const auto& a, const auto& b) { return a.version < b.version; });
  std::erase_if(checkpoints_, [&](const auto& c) {
    return c.version < published.oldest && c.version != published.spared;
  });
  return true;
}

bool Group::take(const Damaged& damaged) {
  return std::erase_if(checkpoints_, [&](const auto& c) { return c.version == damaged.version; }) !=
         0;
}

// A restart is void if the plan that it ends is not the last valid one (as R10); and if a newer
// checkpoint was published, or this one found damaged, while it was under way.
bool Group::take(const Restarted& restarted) {
  if (!plan_ || plan_->id != restarted.lost || restart_) return false;
  if (checkpoints_.empty() || checkpoints_.back().version != restarted.version) return false;
  restart_ = restarted;
  start_ = last_base_ = restarted.version;
  reached_ = std::max(reached_, restarted.reached);
  return true;
}

// The steps after a checkpoint that turns out to be damaged are done again as the run before has done them.
const std::vector<RateChange>& Group::rates() const {
  static const std::vector<RateChange> kNone;
  if (plan_) return plan_->rates;
  return job_ && !job_->checkpoints.empty() ? job_->checkpoints.back().rates : kNone;
}

Version Group::begun() const {
  return job_ && !job_->checkpoints.empty() ? job_->checkpoints.back().version : Version{0};
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
