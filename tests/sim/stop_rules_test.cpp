// Directed schedules for on_nonfinite = "stop" (docs/design.md, section 10): a skipped step is the
// last one, whatever becomes of the coordinators that are told of it.

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "tests/sim/schedule.h"

namespace starling::sim {
namespace {

using elastic::Bugs;

// Three coordinators, and a job of which step kLeastAt or a later one is the first that is skipped.
constexpr Version kLeastAt = 2;

Settings stopping() {
  for (std::uint64_t seed = 1;; ++seed) {
    Settings s = calm(seed);
    s.coordinators = 3;
    s.stop_on_nonfinite = true;
    const Numbers numbers(s.seed, s.micro_batches, s.steps, s.segments);
    const Reference reference(numbers);
    Version first = 0;
    while (first < s.steps && !reference.record(first).skipped) ++first;
    if (first >= kLeastAt && first + 2 < s.steps) return s;
  }
}

// The leader dies when the first member votes for the skipped step, so followers alone are told of
// it, and the next leader has heard none of the steps before.
struct LeaderDiesBefore : Schedule {
  using Schedule::Schedule;
  void on_moment(WorkerProcess&, Moment moment, Version version) override {
    if (done || moment != Moment::kVoted || !world.oracle().reference().record(version).skipped)
      return;
    done = true;
    world.crash_coordinator(world.leader()->index(), 3 * kSecond);
  }
  std::string missed() override { return done ? "" : "the leader dies before the skipped step"; }
  bool done = false;
};

TEST_CASE("stop: the leader dies before the skipped step, and the job ends there all the same") {
  const auto make = [](World& world) { return std::make_unique<LeaderDiesBefore>(world); };
  const Settings settings = stopping();
  const Verdict clean = run_schedule(settings, make);
  CHECK(clean.violation == "");
  CHECK(clean.exit_code == 1);
  Settings broken = settings;
  broken.bugs.stop_by_leader = true;
  CHECK(run_schedule(broken, make).violation == "a step beyond the last is computed");
}

}  // namespace
}  // namespace starling::sim
