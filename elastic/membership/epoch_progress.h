#pragma once
// How far the epoch of the last plan is known to be, from the versions at which its members are
// seen: whether all moves of the plan are done, and how long steps take.
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
  // The plan of the epoch that is to be followed from now on.
  void follow(const Plan& plan) {
    prepared_ = plan.kind == PlanKind::kPrepared;
    first_at_most_.reset();
    if (!prepared_) first_at_most_ = plan.base;
    last_move_ = 0;
    for (const Move& move : plan.moves) last_move_ = std::max(last_move_, move.step_offset);
    moves_ = !plan.moves.empty();
    passed_moves_ = false;
  }
  // It has been committed just now: what comes before its first version is no step.
  void begins(std::uint64_t now_ms) { steps_.epoch_begins(now_ms); }

  // A member that has entered it says that it is at this version. A forced plan says where it begins,
  // and a member at base - 1 has not begun it yet; by a switch its members enter it at its first
  // version.
  void entered_at(Version version) {
    if (prepared_) first_at_most_ = std::min(first_at_most_.value_or(version), version);
  }
  // A member that has entered it has come to this version. True: it is past the step of the last
  // move, and none was before it.
  bool seen_at(Version version, std::uint64_t now_ms) {
    steps_.passed(version, now_ms);
    // One that is past the last move's step saw everybody's vote for it, the targets' among them.
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
