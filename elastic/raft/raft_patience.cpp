#include <algorithm>

#include "elastic/raft/raft.h"

// How long a member waits for others, by how late they are (docs/design.md, section 6,
// "Coordinators"; docs/decisions/018-late-like-everybody.md).

namespace starling::elastic {
namespace {

constexpr std::uint64_t kTimesLate = 4;     // the next one is later than the latest so far
constexpr std::uint64_t kTimesMax = 10;     // T: one that is gone must be missed all the same
constexpr std::uint64_t kWindowTimes = 40;  // T: how long a lateness is remembered, once to twice

}  // namespace

std::uint64_t Raft::patience_ms() const {
  if (has(RaftBug::kImpatient)) return config_.election_ms;
  const std::uint64_t window = now_ms_ / (kWindowTimes * config_.election_ms);
  std::uint64_t late = 0;
  if (window - late_window_ <= 1) late = late_ms_[0];
  if (window == late_window_) late = std::max(late, late_ms_[1]);
  return std::clamp(kTimesLate * late, config_.election_ms, kTimesMax * config_.election_ms);
}

// A member that was away longer than any member waits was gone: it does not measure the others.
void Raft::note_late(std::uint64_t late_ms) {
  if (late_ms > kTimesMax * config_.election_ms) return;
  const std::uint64_t window = now_ms_ / (kWindowTimes * config_.election_ms);
  if (window != late_window_) {
    late_ms_ = {0, window == late_window_ + 1 ? late_ms_[0] : 0};
    late_window_ = window;
  }
  late_ms_[0] = std::max(late_ms_[0], late_ms);
}

// Takes an answer to an earlier try too, which ended before any member could answer.
void Raft::note_answer(const RaftMessage& m) {
  if (m.round > try_ || try_ - m.round >= std::min<std::uint64_t>(tries_, tried_ms_.size())) return;
  note_late(now_ms_ - tried_ms_[m.round % tried_ms_.size()]);
}

void Raft::lose_leader() {
  if (leader_ && *leader_ != config_.self) {
    followed_ = leader_;
    followed_ms_ = heard_ms_;
  }
  leader_.reset();
}

}  // namespace starling::elastic
