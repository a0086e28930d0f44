// Directed schedules for what a life has to tell before it ends (docs/design.md, section 10).

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <variant>

#include "tests/sim/schedule.h"

namespace starling::sim {
namespace {

using elastic::Bugs;

// Step 0 is known to one worker alone, and its words of that step are lost; it leaves while another
// goes on. Until coordinators listen it is told to go.
struct OneKnowsAndLeaves : Schedule {
  explicit OneKnowsAndLeaves(World& w) : Schedule(w) {
    world.loses = [this](const WorkerProcess& from, const Message& body) {
      const auto* progress = std::get_if<Progress>(&body);
      const bool lost = !listens && from.slot() == 0 && progress && progress->record.version == 0;
      words_lost += lost ? 1 : 0;
      return lost;
    };
  }

  void on_event() override {
    WorkerProcess* leaver = world.worker_in(0);
    const WorkerProcess* other = world.worker_in(1);
    if (!joined && world.oracle().reached() > 0) {
      joined = true;
      world.start_worker(1);
    }
    if (!announced && other && other->machine().version() != kNoVersion) {
      announced = true;
      world.announce_leave(*leaver, 10 * kSecond);
    }
    if (!left && announced && leaver && !leaver->machine().run()) {
      left = true;
      on_left(*leaver);
    }
  }
  std::string missed() override {
    if (!left) return "a worker leaves";
    return words_lost > 1 ? "" : "its words of a step are lost";
  }

  virtual void on_left(const WorkerProcess& leaver) = 0;

  bool joined = false, announced = false, left = false, listens = false;
  std::size_t words_lost = 0;
};

// It hears that it may go long before coordinators take its words.
struct ReleasedBefore : OneKnowsAndLeaves {
  using OneKnowsAndLeaves::OneKnowsAndLeaves;
  void on_left(const WorkerProcess&) override {
    world.after(300 * kMs, [this] {
      stayed = world.worker_in(0) != nullptr && !world.job_end();
      listens = true;
    });
  }
  std::string missed() override {
    if (!stayed) return "it waits while the job goes on";
    if (world.counted("leaver released") != 1) return "it goes as one that has left";
    return OneKnowsAndLeaves::missed();
  }
  bool stayed = false;
};

TEST_CASE("last words: who may leave tells first what it alone knows") {
  Settings s = calm(71);
  s.workers = 1;
  s.steps = 200;
  shows<ReleasedBefore>(s, {&Bugs::leave_unacknowledged}, "P2: ");
}

// No word reaches it between the switch and the end of the job.
struct EndsBefore : OneKnowsAndLeaves {
  using OneKnowsAndLeaves::OneKnowsAndLeaves;
  void on_left(const WorkerProcess& leaver) override {
    world.block(0, leaver.place(), world.settings().faults.until);
  }
  void on_event() override {
    OneKnowsAndLeaves::on_event();
    if (listens || !world.job_end()) return;
    listens = true;
    world.heal();
  }
  std::string missed() override {
    if (world.counted("the end before a step was told") != 1) return "the job ends before";
    return OneKnowsAndLeaves::missed();
  }
};

TEST_CASE("last words: who has left tells what it alone knows when the job is over") {
  Settings s = calm(72);
  s.workers = 1;
  s.steps = 40;
  s.faults.until = 5 * kSecond;
  shows<EndsBefore>(s, {&Bugs::leave_unacknowledged}, "P2: ");
}

}  // namespace
}  // namespace starling::sim
