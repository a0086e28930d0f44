#include "tools/chaos/disturber.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/judge/stories.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {
namespace {

// Three workers and their guards, processes of our own that wait, and what is done to the first.
struct Disturbed {
  explicit Disturbed(std::vector<Fault> faults) {
    plan.faults = std::move(faults);
    tale.start();
    for (int id = 1; id <= 3; ++id) {
      workers.push_back(waiting());
      guards.push_back(waiting());
      cast.add("worker-" + std::to_string(id), guards.back(), 0);
      tale.worker(0.5, id, "joined", workers.back());
    }
    tale.epoch(0.9, "1.1", "0.0", "fresh", 0, {1, 2, 3}, "start");
    const judge::Story story = tale.story();
    for (const auto& seen : story.workers) cast.learn(seen);
    cast.learn(story.epochs.front());
  }
  ~Disturbed() {
    for (const auto* pids : {&workers, &guards})
      for (const int pid : *pids) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
  }
  static int waiting() {
    const int pid = ::fork();
    if (pid == 0)
      for (;;) ::pause();
    return pid;
  }
  static void kill(int pid) {
    ::kill(pid, SIGKILL);
    while (alive(pid)) continue;
  }
  // The first. `pace`: seconds of the run's clock from one look to the next; `meanwhile` is called
  // after each.
  judge::Deed deed(
      double pace, const std::function<void()>& meanwhile = [] {}) {
    const judge::Story story = tale.story();
    const auto join = [this](double now) {
      guards.push_back(waiting());
      return &cast.add("worker-" + std::to_string(guards.size()), guards.back(), now);
    };
    Disturber disturber(plan, {}, {[](const std::string&) {}, join, {}, {}, nullptr}, cast, story);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    for (double now = 1; !disturber.finished() && std::chrono::steady_clock::now() < end;
         now += pace) {
      disturber.advance(now, 1);
      meanwhile();
      cast.look();
    }
    return disturber.deeds().front();
  }
  std::vector<int> workers, guards;
  judge::Tale tale;
  Cast cast;
  Plan plan;
};

Fault fault(const FaultKind* kind, double target = 0, double for_s = 0) {
  Fault made;
  made.kind = kind;
  made.target = target;
  made.for_s = for_s;
  return made;
}

}  // namespace

// Looks follow each other as fast as they can, so its time is over long before the process had a
// moment to stop in.
TEST_CASE("a worker that is stopped for a moment is seen to be, and to go on") {
  Disturbed run({fault(&faults::kStop, 0, 2e-6)});
  const judge::Deed deed = run.deed(1e-6);
  CHECK(deed.outcome == judge::Deed::Outcome::kDone);
  CHECK(deed.effects.size() == 2);
  CHECK(deed.verified());
  CHECK_FALSE(stopped(run.workers.front()));
}

// As one that was left out does, between the last look at it and the signal.
TEST_CASE("a worker that ends of its own accord as it is stopped is no effect that was not seen") {
  Disturbed run({fault(&faults::kStop, 0, 2e-6)});
  Disturbed::kill(run.workers.front());
  const judge::Deed deed = run.deed(1e-3);
  CHECK(deed.outcome == judge::Deed::Outcome::kDone);
  CHECK(deed.verified());
}

TEST_CASE("a joiner that ends before an epoch has it was overtaken, and not seen") {
  Disturbed run({fault(&faults::kJoin)});
  const judge::Deed deed = run.deed(1e-3, [&] { Disturbed::kill(run.guards.back()); });
  REQUIRE(deed.outcome == judge::Deed::Outcome::kDone);
  REQUIRE(deed.effects.size() == 1);
  CHECK(deed.effects.front().overtaken);
  CHECK_FALSE(deed.effects.front().seen);
  CHECK(deed.verified());
  CHECK_FALSE(deed.all_seen());
}

// Goal: a change that ends workers with their guards does not pass for one that had its effect.
// Method: the first worker dies right after its guard, for this reason or another.
TEST_CASE("a worker that dies with its guard is seen to, unless something else ended it") {
  const struct {
    const char* name;
    bool dies;
    std::vector<Fault> others;
    const char* event;
    bool verified;
  } cases[] = {
      {"it lives", false, {}, "", true},
      {"it dies", true, {}, "", false},
      {"it is killed", true, {fault(&faults::kKill)}, "", true},
      {"another is killed", true, {fault(&faults::kKill, 0.5)}, "", false},
      {"it is stopped", true, {fault(&faults::kStop, 0, 1)}, "", true},
      {"the job is over",
       true,
       {},
       R"({"t":1,"ev":"done","version":5,"digest":"00000000000000000000000000000064","loss":2.0})",
       true},
      {"all are fenced",
       true,
       {},
       R"({"t":1,"ev":"restart","version":2,"lost":"1.1","cause":"lost"})",
       true},
  };
  for (const auto& c : cases) {
    CAPTURE(c.name);
    std::vector<Fault> faults = {fault(&faults::kGuardKill)};
    faults.insert(faults.end(), c.others.begin(), c.others.end());
    Disturbed run(std::move(faults));
    if (*c.event) run.tale.add(c.event);
    const judge::Deed deed = run.deed(0.25, [&] {
      Disturbed::kill(run.guards.front());
      if (c.dies) Disturbed::kill(run.workers.front());
    });
    CHECK(deed.outcome == judge::Deed::Outcome::kDone);
    CHECK(deed.verified() == c.verified);
  }
}

TEST_CASE("what is held back has the time of the run, as what is done") {
  Disturbed run({fault(&faults::kCheckpointFull)});
  const judge::Deed deed = run.deed(0.25);
  CHECK(deed.outcome == judge::Deed::Outcome::kHeldBack);
  CHECK(deed.t == 1);
  CHECK(deed.until_t == 1);
}

TEST_CASE("P5: what was done to a worker explains how its processes end") {
  constexpr int kGuard = 10, kWorker = 11;
  const auto player = [](void (*change)(Player&)) {
    Player made;
    change(made);
    return made;
  };
  const Player untouched = player([](Player&) {});
  const Player killed = player([](Player& p) { p.killed = true; });
  const Player leaving = player([](Player& p) { p.leaving = true; });
  const Player guardless = player([](Player& p) { p.killed_guard = kGuard; });
  const struct {
    const char* name;
    int pid, status;
    const Player& player;
    bool expected;
  } cases[] = {
      {"a good end", kWorker, 0, untouched, true},
      {"as the run", kWorker, 4, untouched, true},
      {"killed by nobody", kWorker, 137, untouched, false},
      {"killed", kWorker, 137, killed, true},
      {"killed at the end of its notice", kWorker, 143, leaving, true},
      {"its guard is killed", kGuard, 137, guardless, true},
      {"killed with its guard", kWorker, 137, guardless, false},
      {"fenced, with nobody to begin a new life", kWorker, 75, guardless, true},
      {"fenced, and no new life", kGuard, 75, untouched, false},
  };
  for (const auto& c : cases) {
    CAPTURE(c.name);
    CHECK(explained({"worker-1", c.pid, c.status, true}, c.player, 4) == c.expected);
  }
  CHECK(explained({"worker-1", kWorker, 3, true}, untouched, 0));  // out of touch at the end
}

}  // namespace starling::chaos
