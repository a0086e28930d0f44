#include "tests/sim/schedule.h"

#include <doctest/doctest.h>

namespace starling::sim {

Verdict run_schedule(const Settings& settings, const MakeSchedule& make) {
  return run_isolated([&](bool trace) {
    World world(settings, trace);
    const auto schedule = make(world);
    world.on_moment = [&](WorkerProcess& process, Moment moment, Version version) {
      schedule->on_moment(process, moment, version);
    };
    world.on_event = [&] { schedule->on_event(); };
    Outcome outcome = world.run();
    if (!outcome.violation.empty()) return outcome;
    if (const std::string missed = schedule->missed(); !missed.empty())
      outcome.violation = "the script missed its point: " + missed;
    return outcome;
  });
}

void shows(const Settings& settings, const Switches& switches, const std::string& notice,
           const MakeSchedule& make) {
  const Verdict clean = run_schedule(settings, make);
  CHECK(clean.violation == "");
  CHECK(clean.exit_code == 0);
  Settings with = settings;
  for (const auto rule : switches) with.bugs.*rule = true;
  const Verdict broken = run_schedule(with, make);
  INFO("noticed as: ", broken.violation, ", exit code ", broken.exit_code);
  CHECK(broken.violation.substr(0, notice.size()) == notice);
}

Settings calm(std::uint64_t seed) {
  Settings s;
  s.seed = seed;
  s.steps = 12;
  s.faults.until = 2 * kSecond;  // what the script blocks stays blocked until then
  return s;
}

}  // namespace starling::sim
