#pragma once
// Anomalies warns of what a person should look into: skipped steps, a loss or a norm that leaps, a worker that is much
// slower than the others. It belongs to the observer of a whole run (skips.h says why).
//
// Threads: none; a value that belongs to the observer.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/job/job.h"
#include "core/observe/event.h"
#include "core/observe/skips.h"

namespace starling {

// Leap finds values that are far above the kWindow values before them. Such a value lies above the median of these values
// by more than kFar times the median of their distances from it, by more than kBeyond times the distance of the highest
// of them, and by more than a given factor of the median itself. After a leap the window is empty, so Leap reports a series
// that stays high once.
class Leap {
 public:
  static constexpr std::size_t kWindow = 64;
  static constexpr double kFar = 15, kBeyond = 5;

  explicit Leap(double factor) : factor_(factor) {}
  // Takes the next value. Returns what those before it were, "about 3.2 (3.1 to 3.4)", if it leaps.
  std::optional<std::string> take(double value);

 private:
  const double factor_;
  std::deque<double> window_;
};

class Anomalies {
 public:
  explicit Anomalies(const Job& job);
  // Takes the events of a run in their order. Returns a warning that is due.
  std::optional<event::Warning> take(const Event& event);

 private:
  void begin(const event::EpochFormed& epoch);
  std::optional<event::Warning> leap_in(const event::StepPassed& step);
  std::optional<event::Warning> slow_one(const event::LedgerPassed& ledger);

  Skips skips_;
  Leap loss_, norm_;
  std::optional<Version> last_step_, last_ledger_;
  const bool shares_by_speed_;
  std::map<std::uint64_t, std::string> names_;  // of workers

  // Micro-batches that members of the epoch have computed, in so many of its steps; those that leave do not count.
  EpochId epoch_{};
  std::vector<std::uint64_t> members_;
  std::map<std::uint64_t, std::uint64_t> computed_;
  std::uint64_t steps_ = 0;
  std::set<std::uint64_t> slow_,
      told_;  // workers that were slow in the steps before, and that were said to be
};

}  // namespace starling
