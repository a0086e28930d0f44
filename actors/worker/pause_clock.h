#pragma once
// PauseClock splits the time from a worker's stop to its next pass (core/wire/messages.h, Pause).

#include <array>
#include <chrono>
#include <optional>

#include "core/wire/messages.h"

namespace starling::actors {

// Marks are taken in this order, each once; a new mark removes those after it,
// which can only be of an epoch that was stopped meanwhile. A second stop before
// the pass throws away the marks since the first, which stays in force: the time of
// the attempt that failed counts as the first part. Threads: belongs to one thread.
class PauseClock {
 public:
  using Clock = std::chrono::steady_clock;
  enum Mark : std::size_t { kStopped, kReported, kPlanned, kConnected, kComputed, kReduced };

  void stopped(Clock::time_point now = Clock::now()) {
    if (!marks_[kStopped]) marks_[kStopped] = now;
    for (std::size_t i = kReported; i < marks_.size(); ++i) marks_[i].reset();
  }
  void mark(Mark mark, Clock::time_point now = Clock::now()) {
    if (!marks_[kStopped] || marks_[mark]) return;
    marks_[mark] = now;
    for (std::size_t later = mark + 1; later < marks_.size(); ++later) marks_[later].reset();
  }
  // Ends the pause, if there was one. A part without a mark took no time, and no part less.
  std::optional<Pause> passed(Clock::time_point now = Clock::now()) {
    if (!marks_[kStopped]) return std::nullopt;
    std::array<double, kReduced + 1> parts{};
    Clock::time_point before = *marks_[kStopped];
    for (std::size_t i = kReported; i <= marks_.size(); ++i) {
      const Clock::time_point end = i == marks_.size() ? now : marks_[i].value_or(before);
      parts[i - 1] = std::chrono::duration<double, std::milli>(end - before).count();
      before = end;
    }
    marks_ = {};
    return Pause{parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]};
  }

 private:
  std::array<std::optional<Clock::time_point>, kReduced + 1> marks_;
};

}  // namespace starling::actors
