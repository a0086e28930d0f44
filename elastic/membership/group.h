#pragma once
// Group is the membership group's replicated state: what the committed log says, the same at every
// coordinator. Pure; applied entry by entry, or restored from another coordinator's state. Its size
// follows from the number of current members: lives and plans that no message can name any more are
// forgotten (docs/decisions/017-a-snapshot-is-the-state-of-the-group.md).

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/wire/group_state.h"
#include "core/wire/messages.h"
#include "elastic/protocol/bugs.h"

namespace starling::elastic {

// The message that tells workers of the end.
Ended ended(const JobEnded& end);

class Group {
 public:
  using Worker = GroupState::Life;
  // Lives that are over and still known, so that a new leader can tell of them.
  static constexpr std::size_t kRemembered = 16;
  // Plans that may pass over a waiting life before it is forgotten: a living one is in the next.
  static constexpr std::uint64_t kPassedOver = 32;

  explicit Group(Bugs bugs = {}) : bugs_(bugs) {}

  // Takes one committed entry. False if it has no effect: a plan whose predecessor is not the last
  // valid plan (R10), anything after the end, a join of a known life.
  bool apply(const Entry& entry);

  // The whole state; restore() of it gives an equal group.
  GroupState state() const;
  void restore(GroupState state);

  const std::optional<Plan>& plan() const { return plan_; }           // the last valid plan
  const std::optional<Plan>& predecessor() const { return before_; }  // the valid one before it
  const std::optional<JobEnded>& end() const { return end_; }
  const std::optional<JobStarted>& job() const { return job_; }
  // The worker of this life; null: it has not joined, or is forgotten.
  const Worker* find(const Incarnation& who) const;
  // A life that joined once and is known no more: it is in no plan that may run, and must begin
  // anew. No list of such lives is kept: counters below the next one were all given out.
  bool forgotten(const Incarnation& who) const;
  const std::map<Nonce, Worker>& workers() const { return workers_; }  // by nonce
  // Whether this life was a member of that valid plan. Known for the last fresh plan, and for every
  // epoch that a report of a current member may still name as its last one.
  bool was_member(const EpochId& epoch, const Incarnation& who) const;
  const EpochId& last_fresh() const { return last_fresh_; }
  // The base of the last forced or fresh plan (that of a fresh start if there is none).
  Version last_base() const { return last_base_; }

  // The coordinators that were given a place since the group began.
  const std::map<std::uint32_t, CoordinatorAt>& seats() const { return seats_; }

  // The complete checkpoints that can be read as far as is known, oldest first.
  const std::vector<Checkpoint>& checkpoints() const { return checkpoints_; }
  // The version of a fresh start: that of a checkpoint, or 0.
  Version start() const { return start_; }
  // The version with which this run began, whatever it went back to later.
  Version begun() const;
  // Whether a fresh start is possible: from the seed always, else while its checkpoint can be read.
  bool can_start() const;
  // The changes of the peak rate, whichever epoch made them.
  const std::vector<RateChange>& rates() const;
  // No step from this version on was told before the run went back to a checkpoint.
  Version reached() const { return reached_; }
  // Set while a fresh start from a checkpoint is to follow: the last plan is over then.
  const std::optional<Restarted>& restart() const { return restart_; }

 private:
  bool take(const JobStarted& job);
  bool take(const Joined& joined);
  bool take(const LeaveAnnounced& leave);
  bool take(const Lost& lost);
  bool take(const Plan& plan);
  bool take(const JobEnded& end);
  bool take(const Published& published);
  bool take(const Damaged& damaged);
  bool take(const Restarted& restarted);
  bool take(const CoordinatorAt& seat);
  void forget_lives();
  void forget_epochs();
  void check_invariants() const;

  Bugs bugs_;
  std::optional<JobStarted> job_;
  std::optional<Plan> plan_, before_;
  std::optional<JobEnded> end_;
  std::map<Nonce, Worker> workers_;
  std::map<EpochId, std::set<Nonce>> history_;  // nonces of a valid plan's members
  std::uint64_t next_counter_ = 1;
  std::uint64_t plans_ = 0;  // valid ones so far
  Version last_base_ = 0;
  EpochId last_fresh_;
  std::vector<Checkpoint> checkpoints_;
  Version start_ = 0, reached_ = 0;
  std::optional<Restarted> restart_;
  std::map<std::uint32_t, CoordinatorAt> seats_;  // by place
};

}  // namespace starling::elastic
