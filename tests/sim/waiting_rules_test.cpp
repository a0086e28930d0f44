// Directed schedules for whom the leader waits for (docs/design.md, section 6).

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "tests/sim/schedule.h"

namespace starling::sim {
namespace {

using elastic::Bugs;

constexpr Version kStep = 3;  // the scripts begin when it is reached
constexpr Micros kForEver = 3600 * kSecond;

// One worker's threads hang in what they compute, for ever; the one that obeys the protocol goes
// on.
struct HangsForEver : Schedule {
  using Schedule::Schedule;
  void on_moment(WorkerProcess& process, Moment moment, Version version) override {
    if (hung || process.slot() != 1 || moment != Moment::kComputed || version < kStep) return;
    hung = true;
    process.hang(kForEver);
  }
  std::string missed() override {
    if (!hung) return "a worker hangs";
    return world.counted("hung worker left out") == 1 ? "" : "it is left out";
  }
  bool hung = false;
};

TEST_CASE("rules: a worker that computes for ever while it is heard is left out") {
  shows<HangsForEver>(calm(61), {&Bugs::standstill_unseen}, "P5: ");
}

// The storage of one of three hangs while they load what a checkpoint has.
struct LoadsForEver : Schedule {
  using Schedule::Schedule;
  void on_moment(WorkerProcess& process, Moment moment, Version) override {
    if (hung || process.slot() != 1 || moment != Moment::kConnecting) return;
    hung = true;
    process.hang(kForEver);
  }
  std::string missed() override {
    if (!hung) return "a worker hangs";
    return world.counted("hung worker left out") == 1 ? "" : "it is left out";
  }
  bool hung = false;
};

TEST_CASE("rules: a worker that loads a checkpoint for ever is left out") {
  Settings s = calm(62);
  s.checkpoint_every = 2;
  s.resume_at = 4;
  shows<LoadsForEver>(s, {&Bugs::standstill_unseen}, "P5: ");
}

// What nobody else has. With r = 0 it is waited for as a silent one is; then the job ends.
TEST_CASE("rules: a worker that hangs and alone has some state is waited for") {
  Settings s = calm(63);
  s.replicas = 0;
  s.workers = 2;
  s.faults.until = 40 * kSecond;
  const Verdict run = run_schedule(s, [](World& world) {
    struct Hangs : HangsForEver {
      using HangsForEver::HangsForEver;
      std::string missed() override { return hung ? "" : "a worker hangs"; }
    };
    return std::make_unique<Hangs>(world);
  });
  CHECK(run.violation == "");
  CHECK(run.exit_code == 4);
}

// All workers' words take longer than a lease, all alike.
struct AllLate : Schedule {
  using Schedule::Schedule;
  std::string missed() override {
    const std::size_t epochs = world.oracle().chain().size();
    return epochs == 1 ? "" : "one epoch, not " + std::to_string(epochs);
  }
};

TEST_CASE("rules: nobody is left out for a lateness that all share") {
  Settings s = calm(64);
  s.workers = 6;
  s.steps = 200;
  s.faults.until = 20 * kSecond;
  s.connect_timeout = 5 * kSecond;
  s.control_delay = {10 * kMs, 700 * kMs};  // a lease is 300 ms
  const Verdict run = run_schedule(s, [](World& w) { return std::make_unique<AllLate>(w); });
  CHECK(run.violation == "");
  CHECK(run.exit_code == 0);
}

}  // namespace
}  // namespace starling::sim
