#include "tools/chaos/disturber.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "tests/chaos/stories.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {
namespace {

// Three workers, processes of our own that wait, and one SIGSTOP to the first of them at once.
struct Stopping {
  Stopping() {
    Tale tale;
    tale.start();
    for (int id = 1; id <= 3; ++id) {
      const int pid = ::fork();
      if (pid == 0)
        for (;;) ::pause();
      pids.push_back(pid);
      cast.add("worker-" + std::to_string(id), 0, 0);
      tale.worker(0.5, id, "joined", pid);
    }
    tale.epoch(0.9, "1.1", "0.0", "fresh", 0, {1, 2, 3}, "start");
    story = tale.story();
    for (const WorkerSeen& seen : story.workers) cast.learn(seen);
    cast.learn(story.epochs.front());
    Fault fault;
    fault.kind = FaultKind::kStop;
    fault.for_s = 2e-6;
    plan.faults = {fault};
  }
  ~Stopping() {
    for (const int pid : pids) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  // `pace`: seconds of the run's clock from one look to the next.
  Deed deed(double pace) {
    Disturber disturber(plan, {}, {[](const std::string&) {}, {}, {}, {}, nullptr}, cast, story);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (double now = 1; !disturber.finished() && std::chrono::steady_clock::now() < end;
         now += pace)
      disturber.advance(now, 1);
    return disturber.deeds().front();
  }
  std::vector<int> pids;
  Cast cast;
  Story story;
  Plan plan;
};

}  // namespace

// Looks follow each other as fast as they can, so its time is over long before the process had a
// moment to stop in.
TEST_CASE("a worker that is stopped for a moment is seen to be, and to go on") {
  Stopping stopping;
  const Deed deed = stopping.deed(1e-6);
  CHECK(deed.outcome == Deed::Outcome::kDone);
  CHECK(deed.effects.size() == 2);
  CHECK(deed.verified());
  CHECK_FALSE(stopped(stopping.pids.front()));
}

// As one that was left out does, between the last look at it and the signal.
TEST_CASE("a worker that ends of its own accord as it is stopped is no effect that was not seen") {
  Stopping stopping;
  ::kill(stopping.pids.front(), SIGKILL);
  while (alive(stopping.pids.front())) continue;
  const Deed deed = stopping.deed(1e-3);
  CHECK(deed.outcome == Deed::Outcome::kDone);
  CHECK(deed.verified());
}

}  // namespace starling::chaos
