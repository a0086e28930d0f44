// Directed schedules for a group whose members all have notice (docs/design.md, section 6): a
// checkpoint is asked for, and the run ends in order or goes on from there.

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "tests/sim/schedule.h"

namespace starling::sim {
namespace {

constexpr Version kToldAt = 5;
constexpr Micros kNotice = 500 * kMs;

Settings leaving(std::uint64_t seed) {
  Settings s = calm(seed);
  s.steps = 400;              // longer than the notices last
  s.checkpoint.every = 1000;  // those alone that are asked for
  s.elastic.start_timeout_ms = 2000;
  s.faults.until = 20 * kSecond;  // until then the world brings nobody by itself
  return s;
}

struct AllHaveNotice : Schedule {
  using Schedule::Schedule;
  void on_event() override {
    if (!told && world.oracle().reached() >= kToldAt) {
      told = true;
      for (std::uint32_t slot = 0; slot < 3; ++slot)
        world.announce_leave(*world.worker_in(slot), kNotice);
    }
    if (!over && told && world.alive_workers() == 0) {
      over = true;
      all_gone();
    }
  }
  virtual void all_gone() {}
  std::string missed() override {
    if (!over) return "all leave";
    return world.counted("checkpoint") > 0 ? "" : "a checkpoint is written";
  }
  bool told = false, over = false;
};

TEST_CASE("ends: all leave after a checkpoint, nobody comes, and the run has ended in order") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const Verdict run = run_schedule(
        leaving(seed), [](World& world) { return std::make_unique<AllHaveNotice>(world); });
    CHECK(run.violation == "");
    CHECK(run.exit_code == 143);
  }
}

struct OthersCome : AllHaveNotice {
  using AllHaveNotice::AllHaveNotice;
  void all_gone() override {
    world.after(500 * kMs, [this] {
      for (std::uint32_t slot = 3; slot < 5; ++slot) world.start_worker(slot);
    });
  }
  std::string missed() override {
    if (world.counted("restart from a checkpoint") != 1) return "no restart";
    return AllHaveNotice::missed();
  }
};

TEST_CASE("ends: all leave after a checkpoint, others come, and the job is done") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const Verdict run = run_schedule(
        leaving(seed), [](World& world) { return std::make_unique<OthersCome>(world); });
    CHECK(run.violation == "");
    CHECK(run.exit_code == 0);
  }
}

}  // namespace
}  // namespace starling::sim
