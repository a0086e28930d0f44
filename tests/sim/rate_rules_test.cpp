// Directed schedules for R19: a rate that an admin changes beside a join, and while steps are done again.

#include <doctest/doctest.h>

#include "tests/sim/schedule.h"

namespace starling::sim {
namespace {

using elastic::Bugs;

void ask_for_rate(World& world, double peak_rate) {
  AdminAsked asked{.action = AdminAction::kRate, .worker = {}};
  asked.peak_rate = peak_rate;
  for (std::uint32_t i = 0; i < world.settings().coordinators; ++i) {
    CoordinatorProcess& process = world.coordinator(i);
    process.submit([&process, asked] {
      process.handle(elastic::coordinator_event::AdminArrived{{0, Nonce(1)}, "admin", asked});
    });
  }
}

// At which step workers switch to a prepared plan follows from votes alone.
struct BesideAJoin : Schedule {
  using Schedule::Schedule;
  void on_event() override {
    if (done || world.oracle().reached() < kStep) return;
    done = true;
    world.start_worker(3);
    ask_for_rate(world, 5);
  }
  std::string missed() override {
    return world.counted("another rate") == 1 ? "" : "the rate was not changed once";
  }
  bool done = false;
};

TEST_CASE("rules: R19, a plan that stops nobody changes no rate") {
  shows<BesideAJoin>(calm(41), {&Bugs::r19_prepared_rate}, "R19: ");
}

// Everybody dies long after the newest checkpoint; then the rate changes before those steps are done again.
struct WhileDoneAgain : Schedule {
  using Schedule::Schedule;
  void on_event() override {
    if (phase == 0 && world.oracle().reached() >= 9 && world.counted("checkpoint") > 0) {
      phase = 1;
      for (std::uint32_t slot = 0; slot < 3; ++slot) world.worker_in(slot)->kill("script");
      for (std::uint32_t slot = 3; slot < 6; ++slot) world.start_worker(slot);
    }
    if (phase == 1 && world.counted("fresh plan from a checkpoint") == 1) {
      phase = 2;
      ask_for_rate(world, 5);
    }
  }
  std::string missed() override {
    return world.counted("another rate after a restart") == 1 ? ""
                                                              : "the rate was not changed once";
  }
  int phase = 0;
};

TEST_CASE("rules: R19, steps that people were told of are done again with their rate") {
  Settings s = calm(42);
  s.steps = 30;
  s.checkpoint.every = 4;
  s.disk_full = 0;
  shows<WhileDoneAgain>(s, {&Bugs::r19_rate_of_told}, "R19: ");
}

}  // namespace
}  // namespace starling::sim
