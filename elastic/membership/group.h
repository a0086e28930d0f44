#pragma once
// The membership group's replicated state: what the committed log says, the same at every
// coordinator. Pure; applied entry by entry.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/wire/messages.h"
#include "elastic/protocol/bugs.h"

namespace starling::elastic {

class Group {
 public:
  struct Worker {
    Join join;  // who.counter is set
    bool leaving = false;
    bool dead = false;     // certainly: its guard said so
    bool planned = false;  // was a member of a valid plan
  };

  explicit Group(Bugs bugs = {}) : bugs_(bugs) {}

  // Takes one committed entry. False if it has no effect: a plan whose predecessor is not the last
  // valid plan (R10), anything after the end, a join of a known life.
  bool apply(const Entry& entry);

  const std::optional<Plan>& plan() const { return plan_; }           // the last valid plan
  const std::optional<Plan>& predecessor() const { return before_; }  // the valid one before it
  const std::optional<JobEnded>& end() const { return end_; }
  const std::optional<JobStarted>& job() const { return job_; }
  const Worker* find(const Incarnation& who) const;
  const std::map<std::uint64_t, Worker>& workers() const { return workers_; }  // by nonce
  std::uint64_t next_counter() const { return next_counter_; }
  // Whether this life was a member of that valid plan, however long ago.
  bool was_member(const EpochId& epoch, const Incarnation& who) const;
  const EpochId& last_fresh() const { return last_fresh_; }
  // Base of the last forced or fresh plan (that of a fresh start if none).
  Version last_base() const { return last_base_; }

  // Complete ones that can be read as far as anybody knows, oldest first.
  const std::vector<Checkpoint>& checkpoints() const { return checkpoints_; }
  // The version of a fresh start: that of a checkpoint, or 0.
  Version start() const { return start_; }
  // Whether a fresh start is possible: from the seed always, else while its checkpoint can be read.
  bool can_start() const;
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

  Bugs bugs_;
  std::optional<JobStarted> job_;
  std::optional<Plan> plan_, before_;
  std::optional<JobEnded> end_;
  std::map<std::uint64_t, Worker> workers_;
  std::map<EpochId, std::set<std::uint64_t>> history_;  // nonces of each valid plan's members
  std::uint64_t next_counter_ = 1;
  Version last_base_ = 0;
  EpochId last_fresh_;
  std::vector<Checkpoint> checkpoints_;
  Version start_ = 0;
  std::optional<Restarted> restart_;
};

}  // namespace starling::elastic
