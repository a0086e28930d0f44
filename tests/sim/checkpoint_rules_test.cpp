// Directed schedules for checkpoints: the loss of everything, a survivor with a part of it, a
// damaged checkpoint, and the fence of R11 in a restart.

#include <doctest/doctest.h>

#include <string>

#include "tests/sim/schedule.h"

namespace starling::sim {
namespace {

using elastic::Bugs;

constexpr Version kLossAt = 8;  // checkpoints are at 3 and 6

Settings with_checkpoints(std::uint64_t seed) {
  Settings s = calm(seed);
  s.steps = 20;  // the second checkpoint may take as long as a few steps
  s.checkpoint.every = 3;
  return s;
}

// From kLossAt on: once, when the second checkpoint is complete.
struct Loss : Schedule {
  using Schedule::Schedule;
  void on_event() override {
    if (done || world.oracle().reached() < kLossAt || world.counted("checkpoint") < 2) return;
    done = true;
    lose();
  }
  virtual void lose() = 0;
  std::string missed() override {
    if (world.counted("restart from a checkpoint") != 1) return "no restart";
    return world.counted("fresh plan from a checkpoint") == 1 ? "" : "no fresh plan";
  }
  bool done = false;
};

struct AllDie : Loss {
  using Loss::Loss;
  void lose() override {
    for (std::uint32_t slot = 0; slot < 3; ++slot) world.worker_in(slot)->kill("script");
    for (std::uint32_t slot = 3; slot < 5; ++slot) world.start_worker(slot);
  }
};

// Goal: P5. Method: two others come than were lost, and not as many.
TEST_CASE("checkpoints: with all workers killed at once the job goes on from the newest") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const Verdict run = run_schedule(with_checkpoints(seed),
                                     [](World& world) { return std::make_unique<AllDie>(world); });
    CHECK(run.violation == "");
    CHECK(run.exit_code == 0);
  }
}

struct TwoDie : Loss {
  using Loss::Loss;
  void lose() override {
    for (std::uint32_t slot = 0; slot < 2; ++slot) world.worker_in(slot)->kill("script");
  }
  std::string missed() override {
    if (!Loss::missed().empty()) return Loss::missed();
    return world.counted("fenced worker starts a new life") > 0 ? "" : "nobody began a new life";
  }
};

// With one copy of everything: who is left has some of the state, of a version that nobody can
// complete.
TEST_CASE("checkpoints: a survivor without all of the state begins a new life") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Settings settings = with_checkpoints(seed);
    settings.replicas = 0;
    const Verdict run =
        run_schedule(settings, [](World& world) { return std::make_unique<TwoDie>(world); });
    CHECK(run.violation == "");
    CHECK(run.exit_code == 0);
  }
}

// An earlier run left checkpoints at 3 and 6; half of all shards are damaged.
TEST_CASE("checkpoints: a damaged one is told, and the one before it used") {
  std::uint64_t older = 0, none = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Settings settings = with_checkpoints(seed);
    settings.resume_at = 6;
    settings.damage = 0.5;
    const Verdict run =
        run_isolated([&](bool trace) { return World(settings, trace).run(); }, /*trace=*/false);
    CHECK(run.violation == "");
    CHECK((run.exit_code == 0 || run.exit_code == 4));
    older += run.exit_code == 0;
    none += run.exit_code == 4;
  }
  CHECK(older > 10);
  CHECK(none > 2);  // both were damaged
}

// Nobody hears the workers of the epoch, which goes on; two others could begin anew.
struct Unheard : Loss {
  using Loss::Loss;
  void lose() override {
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
      world.block(world.place_of_worker(slot), 0, 30 * kSecond);
      world.block(0, world.place_of_worker(slot), 30 * kSecond);
    }
    for (std::uint32_t slot = 3; slot < 5; ++slot) world.start_worker(slot);
  }
  std::string missed() override { return done ? "" : "nobody was cut off"; }
};

TEST_CASE("checkpoints: R11, no restart while an epoch may still run") {
  Settings settings = with_checkpoints(1);
  settings.steps = 2000;
  settings.faults.until = 20 * kSecond;
  const MakeSchedule make = [](World& world) { return std::make_unique<Unheard>(world); };
  const Verdict clean = run_schedule(settings, make);
  CHECK(clean.violation == "");
  CHECK(clean.exit_code == 4);
  settings.bugs.r11_no_fence = true;
  const Verdict broken = run_schedule(settings, make);
  CHECK(broken.violation.find("R11: a restart though epoch") == 0);
}

}  // namespace
}  // namespace starling::sim
