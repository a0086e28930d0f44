#pragma once
// Newcomers counts the workers that prepare to join a run.

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

#include "core/observe/event.h"

namespace starling {

// A worker counts from its `preparing` on until one of its name has joined. No event tells
// the end of a process that has not joined: such a process counts no longer than kPatience.
//
// Threads: belongs to one thread.
class Newcomers {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPatience{120};

  void take(const event::Preparing& worker, Clock::time_point now = Clock::now());
  // A worker that left or was lost had joined before: one of its name that prepares is its next life.
  void take(const event::WorkerChanged& worker);
  std::size_t count(Clock::time_point now = Clock::now());

 private:
  std::map<std::string, Clock::time_point> since_;  // by name
};

}  // namespace starling
