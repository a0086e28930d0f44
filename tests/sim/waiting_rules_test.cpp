// Directed schedules for whom the leader waits for (docs/design.md, section 6).

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "tests/sim/schedule.h"

namespace starling::sim {
namespace {

using elastic::Bugs;

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
  s.checkpoint.every = 2;
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

// What coordinators say to each other takes up to four times their election's time; then the leader
// is lost.
struct LateCoordinators : Schedule {
  using Schedule::Schedule;
  std::uint64_t terms() const {
    std::uint64_t term = 0;
    for (const auto& c : world.coordinators())
      if (c->alive()) term = std::max(term, c->machine().raft().term());
    return term;
  }
  void on_event() override {
    if (world.now() < 10 * kSecond || crashed) return;
    CoordinatorProcess* leader = world.leader();
    if (!leader) return;
    before = terms();
    crashed = true;
    world.crash_coordinator(leader->index(), 5 * kSecond);
  }
  std::string missed() override {
    // The first one is by chance: nobody knows yet how late the others are.
    const std::string all = std::to_string(before) + " before, " + std::to_string(terms());
    if (!crashed || before > 3) return "few elections without a fault, not " + all;
    return terms() <= before + 2 ? "" : "few elections for a fault, not " + all;
  }
  bool crashed = false;
  std::uint64_t before = 0;
};

TEST_CASE("rules: coordinators that are all late elect when one is lost, and hardly else") {
  for (const std::uint64_t seed : {65, 66, 67, 68}) {
    CAPTURE(seed);
    Settings s = calm(seed);
    s.coordinators = 3;
    s.steps = 150;
    s.compute = {60 * kMs, 100 * kMs};
    s.raft_late = {0, 600 * kMs};
    s.deadline = 300 * kSecond;
    const auto make = [](World& w) { return std::make_unique<LateCoordinators>(w); };
    const Verdict run = run_schedule(s, make);
    CHECK(run.violation == "");
    CHECK(run.exit_code == 0);
    s.plant_impatient = true;
    const Verdict impatient = run_schedule(s, make);
    CAPTURE(impatient.violation);
    CHECK(impatient.violation.substr(0, 10) == "P5: no end");
  }
}

// Nobody can connect to the first worker of a job that begins: it is told, and the others begin.
struct LonelyFirst : Schedule {
  explicit LonelyFirst(World& w) : Schedule(w) {
    for (std::uint32_t other = 1; other < 8; ++other)
      world.block(world.place_of_worker(other), world.place_of_worker(0), kForEver);
  }
  std::string missed() override {
    if (world.counted("fenced worker starts a new life") == 0) return "it is told";
    const std::size_t epochs = world.oracle().chain().size();
    return epochs <= 10 ? "" : "few epochs, not " + std::to_string(epochs);
  }
};

TEST_CASE("rules: a job begins without a worker that nobody can connect to") {
  Settings s = calm(70);
  s.steps = 60;
  s.faults.until = 60 * kSecond;
  const Verdict run = run_schedule(s, [](World& w) { return std::make_unique<LonelyFirst>(w); });
  CHECK(run.violation == "");
  CHECK(run.exit_code == 0);
}

// Two of five hear nothing of each other from some step on, and everybody else hears both.
struct PairApart : Schedule {
  using Schedule::Schedule;
  void on_moment(WorkerProcess&, Moment moment, Version version) override {
    if (cut || moment != Moment::kVoted || version < kStep) return;
    cut = true;
    const std::uint32_t a = world.place_of_worker(one), b = world.place_of_worker(one + 1);
    world.block(a, b, kForEver);
    world.block(b, a, kForEver);
    world.bulk().on_cut();
  }
  std::string missed() override {
    if (!cut || world.counted("connection fell silent") == 0) return "a connection falls silent";
    const std::size_t epochs = world.oracle().chain().size();
    return epochs <= 12 ? "" : "few epochs, not " + std::to_string(epochs);
  }
  std::uint32_t one = 1;  // its slot; the other's is the next
  bool cut = false;
};

TEST_CASE("rules: of two who cannot hear each other one is left out, and the others go on") {
  Settings s = calm(71);
  s.workers = 5;
  s.steps = 60;
  s.faults.until = 60 * kSecond;
  const Verdict run = run_schedule(s, [](World& w) { return std::make_unique<PairApart>(w); });
  CHECK(run.violation == "");
  CHECK(run.exit_code == 0);
}

// With r = 0 each of the two has the only copy of something, and neither can be left out.
struct PairOfSoleCopies : PairApart {
  explicit PairOfSoleCopies(World& w) : PairApart(w) { one = 0; }
  std::string missed() override { return cut ? "" : "two are cut off from each other"; }
};

TEST_CASE("rules: two who never hear each other, and cannot be spared, are waited for") {
  Settings s = calm(72);
  s.replicas = 0;
  s.steps = 60;
  s.faults.until = 60 * kSecond;
  const auto make = [](World& w) { return std::make_unique<PairOfSoleCopies>(w); };
  SUBCASE("then the job ends") {
    const Verdict run = run_schedule(s, make);
    CHECK(run.violation == "");
    CHECK(run.exit_code == 4);
  }
  SUBCASE("then it goes on from a checkpoint") {
    s.checkpoint.every = 2;
    const Verdict run = run_schedule(s, make);
    CHECK(run.violation == "");
    CHECK(run.exit_code == 0);
  }
  SUBCASE("and all go on when they hear each other again") {
    s.faults.until = 8 * kSecond;
    const Verdict run = run_schedule(s, make);
    CHECK(run.violation == "");
    CHECK(run.exit_code == 0);
  }
}

}  // namespace
}  // namespace starling::sim
