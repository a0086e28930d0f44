#pragma once
// Directed schedules: a world in which nothing goes wrong but what the script does, at the one
// point where a rule is needed. Each is run twice: with the rule broken on purpose
// (elastic/protocol/ bugs.h) it must be noticed, with the rule in force everything must hold, and
// the script must have come to pass: else it shows nothing.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "elastic/protocol/bugs.h"
#include "tests/sim/run_seeds.h"
#include "tests/sim/world.h"

namespace starling::sim {

inline constexpr Version kStep = 3;  // the scripts begin when it is reached

class Schedule {
 public:
  explicit Schedule(World& w) : world(w) {}
  virtual ~Schedule() = default;

  virtual void on_moment(WorkerProcess&, Moment, Version) {}
  virtual void on_event() {}  // after every event of the world
  // Asked at a clean end: what of the script did not come to pass; empty: all of it did.
  virtual std::string missed() { return ""; }

 protected:
  World& world;
};

using MakeSchedule = std::function<std::unique_ptr<Schedule>(World&)>;

Verdict run_schedule(const Settings& settings, const MakeSchedule& make);

using Switches = std::vector<bool elastic::Bugs::*>;

// Checks both: with the switches on, a violation that begins with `notice`; without them the job is
// done, nothing is violated and nothing of the script missed.
void shows(const Settings& settings, const Switches& switches, const std::string& notice,
           const MakeSchedule& make);
template <class Script>
void shows(const Settings& settings, const Switches& switches, const std::string& notice) {
  shows(settings, switches, notice, [](World& world) { return std::make_unique<Script>(world); });
}

// Three workers, one coordinator, 12 steps, gentle weather, no random faults.
Settings calm(std::uint64_t seed);

}  // namespace starling::sim
