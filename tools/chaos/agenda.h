#pragma once
// An Agenda has the things to do and to see later. Time is an argument: tests need not wait.

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace starling::chaos {

// Threads: belongs to one thread. A call of the agenda may add to it.
class Agenda {
 public:
  // The first advance() at or after `at` calls `then`; those of one time in their order.
  void later(double at, std::function<void(double)> then) {
    timers_.push_back({at, std::move(then)});
  }
  // Every advance() asks `seen` until it says yes, then calls `outcome(true,
  // now)`, or until `deadline` is over, then `outcome(false, now)`.
  void expect(double deadline, std::function<bool()> seen,
              std::function<void(bool, double)> outcome) {
    watches_.push_back({deadline, std::move(seen), std::move(outcome)});
  }

  void advance(double now) {
    // Entries that a call adds are due at the next advance() at the earliest.
    std::vector<Timer> due, rest;
    std::stable_sort(timers_.begin(), timers_.end(),
                     [](const Timer& a, const Timer& b) { return a.at < b.at; });
    for (Timer& timer : std::exchange(timers_, {}))
      (timer.at <= now ? due : rest).push_back(std::move(timer));
    timers_ = std::move(rest);
    for (const Timer& timer : due) timer.then(now);
    for (Watch& watch : std::exchange(watches_, {})) {
      const bool seen = watch.seen();
      if (seen || now > watch.deadline)
        watch.outcome(seen, now);
      else
        watches_.push_back(std::move(watch));
    }
  }

  // Drops the rest; effects that are still waited for were overtaken.
  void drop() {
    timers_.clear();
    watches_.clear();
  }
  bool empty() const { return timers_.empty() && watches_.empty(); }

 private:
  struct Timer {
    double at;
    std::function<void(double)> then;
  };
  struct Watch {
    double deadline;
    std::function<bool()> seen;
    std::function<void(bool, double)> outcome;
  };
  std::vector<Timer> timers_;
  std::vector<Watch> watches_;
};

}  // namespace starling::chaos
