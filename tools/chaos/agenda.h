#pragma once
// What is still to be done and to be seen. Time is an argument, so it is tested without waiting.

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace starling::chaos {

// Threads: belongs to one thread. Calls may add to the agenda they are on.
class Agenda {
 public:
  // `then` is called by the first advance() at or after `at`; those of one time in their order.
  void later(double at, std::function<void(double)> then) {
    timers_.push_back({at, std::move(then)});
  }
  // `seen` is asked by every advance() until it says yes, then `outcome(true, now)`, or until
  // `deadline` is over, then `outcome(false, now)`.
  void expect(double deadline, std::function<bool()> seen,
              std::function<void(bool, double)> outcome) {
    watches_.push_back({deadline, std::move(seen), std::move(outcome)});
  }

  void advance(double now) {
    // What a call adds is due at the next advance() at the earliest.
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

  // The rest is not done; what is still waited for was overtaken.
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
