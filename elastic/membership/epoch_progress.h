#pragma once
// EpochProgress says how far the last plan's epoch is known to be, from the versions at which its
// members are seen: whether all moves of the plan are done, and how long steps take.
//
// Threads: none; a value.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/base/check.h"
#include "core/wire/messages.h"
#include "elastic/membership/patience.h"

namespace starling::elastic {

class EpochProgress {
 public:
  // Follows the epoch of this plan from now on.
  void follow(const Plan& plan) {
    prepared_ = plan.kind == PlanKind::kPrepared;
    first_at_most_.reset();
    if (!prepared_) first_at_most_ = plan.base;
    last_move_ = 0;
    for (const Move& move : plan.moves) last_move_ = std::max(last_move_, move.step_offset);
    moves_ = !plan.moves.empty();
    passed_moves_ = false;
  }
  // The plan has been committed just now: the time up to its first version is no step.
  void begins(std::uint64_t now_ms) { steps_.epoch_begins(now_ms); }

  // A member that has entered the epoch says that it is at this version. A forced plan says where
  // it begins, and a member at base - 1 has not begun it yet; by a switch its members enter it at
  // its first version.
  void entered_at(Version version) {
    if (prepared_) first_at_most_ = std::min(first_at_most_.value_or(version), version);
  }
  // A member that has entered the epoch is at this version. Returns true if it is the first member
  // that is past the step of the last move.
  bool seen_at(Version version, std::uint64_t now_ms) {
    steps_.passed(version, now_ms);
    // A member past the last move's step saw all votes for that step, the targets' among them.
    if (passed_moves_ || !first_at_most_ || version <= *first_at_most_ + last_move_) return false;
    passed_moves_ = true;
    return true;
  }

  void check_invariants() const {
    if (!moves_) STARLING_CHECK(last_move_ == 0);
    if (passed_moves_) STARLING_CHECK(first_at_most_.has_value());
  }

  bool moves_done() const { return !moves_ || passed_moves_; }
  const StepTimes& steps() const { return steps_; }

 private:
  bool prepared_ = false;
  std::optional<Version> first_at_most_;  // upper bound of the epoch's first step, if known
  std::uint32_t last_move_ = 0;           // step offset of the plan's last move
  bool moves_ = false;                    // the plan has any
  bool passed_moves_ = false;             // a member is past that step
  StepTimes steps_;
};

}  // namespace starling::elastic
