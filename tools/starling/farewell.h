#pragma once
// Farewell says when a coordinator that was told to end may go. Where an engine ends all processes of a job, the
// workers are told to leave at about the same time. A coordinator stays for their last checkpoint: only a coordinator
// completes one.
// Pure but for the clock that is passed.

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>

#include "core/observe/event.h"

namespace starling::tools {

class Farewell {
 public:
  using Clock = std::chrono::steady_clock;
  // How long workers may be told after the coordinator, and how long it stays for them.
  static constexpr std::chrono::seconds kHear{2}, kStay{25};

  void on(const Event& event) {
    if (const auto* epoch = std::get_if<event::EpochFormed>(&event)) {
      members_.clear();
      for (const event::EpochMember& member : epoch->members) members_.insert(member.id);
    } else if (const auto* notice = std::get_if<event::NoticeGiven>(&event)) {
      if (notice->leave) leaving_.insert(notice->id);
    } else if (const auto* change = std::get_if<event::WorkerChanged>(&event)) {
      if (change->what != WorkerChange::kJoined) gone_.insert(change->id);
    } else if (const auto* step = std::get_if<event::StepPassed>(&event)) {
      done_ = step->record.version + 1;
    } else if (const auto* complete = std::get_if<event::CheckpointWritten>(&event)) {
      checkpoint_ = complete->version;
    }
  }

  // Notes that the coordinator was told to end. Returns whether it was told before: a second signal ends the wait.
  bool told(Clock::time_point now) {
    if (told_) return true;
    told_ = now;
    done_when_told_ = done_;
    return false;
  }
  bool was_told() const { return told_.has_value(); }

  bool may_go(Clock::time_point now) const {
    if (!told_ || now - *told_ > kStay) return true;
    bool all_leave = !members_.empty(), all_gone = true;
    for (const std::uint64_t id : members_) {
      all_gone = all_gone && gone_.contains(id);
      all_leave = all_leave && (leaving_.contains(id) || gone_.contains(id));
    }
    if (all_leave) return all_gone || (checkpoint_ && *checkpoint_ >= done_when_told_);
    return all_gone || now - *told_ > kHear;
  }

 private:
  std::set<std::uint64_t> members_;  // of the last epoch
  std::set<std::uint64_t> leaving_, gone_;
  Version done_ = 0;                   // steps
  std::optional<Version> checkpoint_;  // the newest
  std::optional<Clock::time_point> told_;
  Version done_when_told_ = 0;
};

}  // namespace starling::tools
