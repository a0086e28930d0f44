// What a worker says of itself while others wait for it, and what it makes of having been away.

#include <doctest/doctest.h>

#include "tests/elastic/one_worker.h"

namespace starling::elastic {
namespace {

using namespace worker_event;
using namespace worker_command;

// Goal: the leader can tell who holds all others up. Method: one step, heartbeat by heartbeat.
TEST_CASE("worker: heartbeats say how much of its share others wait for") {
  OneWorker one;
  one.begin();
  CHECK(one.worker.heartbeat().share_left == 2);
  one.done(0, 0);
  CHECK(one.worker.heartbeat().share_left == 1);
  one.done(0, 1);
  CHECK(one.worker.heartbeat().share_left == 0);  // now it waits for the others' sums
  one.reduced(kFirst, 0);
  for (Rank from : {Rank{1}, Rank{2}}) one.ledger(kFirst, 0, from);
  for (Rank from : {Rank{1}, Rank{2}}) one.vote(kFirst, 0, from);
  CHECK(one.worker.version() == 1);
  CHECK(one.worker.heartbeat().share_left == 0);  // and here for their parameters
  one.on(Gathered{kFirst, 1});
  CHECK(one.worker.heartbeat().share_left == 2);
  one.receive(Freeze{{1, 2}});
  CHECK(one.worker.heartbeat().share_left == 0);  // nobody waits for one that has stopped
}

// Goal: where something is lost on the way, the leader can tell from whom.
TEST_CASE(
    "worker: heartbeats say whose rows and whose votes it waits for, with nothing left to do") {
  using Ranks = std::vector<Rank>;
  OneWorker one;
  one.begin();
  const auto missed = [&] { return one.worker.heartbeat().missed; };
  CHECK(missed() == Ranks{});  // its own share is to be done
  one.own_share(0);
  CHECK(missed() == Ranks{1, 2});
  one.ledger(kFirst, 0, 1);
  CHECK(missed() == Ranks{2});
  one.on(Working{/*orders_left=*/1, /*progress=*/1});
  CHECK(missed() == Ranks{});
  one.on(Working{/*orders_left=*/0, /*progress=*/2});
  one.ledger(kFirst, 0, 2);
  CHECK(missed() == Ranks{});  // the totals are still to come, from whom is not known
  one.reduced(kFirst, 0);
  CHECK(missed() == Ranks{1, 2});  // now their votes
  one.vote(kFirst, 0, 2);
  CHECK(missed() == Ranks{1});
  one.receive(Freeze{{1, 2}});
  CHECK(missed() == Ranks{});
}

// Goal: people hear why a worker is left out. Method: the question that another worker's report caused
// comes before the news that a third fell silent.
TEST_CASE("worker: it reports which peer fell silent, though it is asked before it hears of that") {
  OneWorker one;
  one.begin();
  one.receive(Freeze{{1, 2}});
  one.on(Broken{kFirst, 2, LinkFault::kSilent});
  one.on(Stopped{kFirst});
  const auto reports = one.said<Report>();
  REQUIRE_FALSE(reports.empty());
  CHECK(reports.back().fault == LinkFault::kSilent);
  CHECK(reports.back().broken == std::vector<Incarnation>{OneWorker::member(3).who});
}

TEST_CASE("worker: heartbeats say how much it has still to load") {
  OneWorker one;
  Join join;
  join.who = {0, 1};
  one.on(Start{join});
  one.receive(Welcome{{1, 1}, ""});
  one.receive(Freeze{kFirst});
  one.receive(
      Committed{OneWorker::plan(PlanKind::kFresh, kFirst, {}, /*base=*/4, BeginAt::kGather)});
  CHECK(one.worker.heartbeat().load_left == 3);
  one.on(Loading{kFirst, 1});
  CHECK(one.worker.heartbeat().load_left == 1);
  one.on(Loading{kFirst, 0});
  CHECK(one.worker.heartbeat().load_left == 1);  // it is read, the state is not there yet
  one.on(Loading{{1, 9}, 3});                    // another epoch's
  CHECK(one.worker.heartbeat().load_left == 1);
  one.on(Initialised{kFirst, {}});
  CHECK(one.worker.heartbeat().load_left == 0);
}

TEST_CASE("worker: heartbeats say what its other threads have done and have still to do") {
  OneWorker one;
  one.begin();
  CHECK(one.worker.heartbeat().orders_left == 0);
  one.on(Working{/*orders_left=*/3, /*progress=*/70});
  CHECK(one.worker.heartbeat().orders_left == 3);
  CHECK(one.worker.heartbeat().progress == 70);
}

TEST_CASE("worker: what cannot be done here ends its life") {
  OneWorker one;
  one.begin();
  one.on(Failed{76, "worker-1: the state of segment 3 changed in memory"});
  REQUIRE(one.count<Exit>() == 1);
  const Exit exit = OneWorker::among<Exit>(one.all).front();
  CHECK(exit.code == 76);
  CHECK(exit.reason == "worker-1: the state of segment 3 changed in memory");
  CHECK_FALSE(exit.trained);
  CHECK(one.worker.gone());
}

// Goal: a worker that was frozen for longer than it waits for coordinators begins a new life.
TEST_CASE("worker: one that was frozen hears that it was left out before it gives up") {
  OneWorker one;
  one.begin();
  one.on(Tick{1});
  one.on(Tick{10});
  one.on(Tick{100000});  // the clock is looked at before the messages that have waited
  CHECK(one.count<Exit>() == 0);
  one.receive(Fenced{});
  REQUIRE(one.count<Exit>() == 1);
  CHECK(OneWorker::among<Exit>(one.all)[0].fenced);
}

TEST_CASE("worker: it gives up when it looked for a coordinator all the time and heard none") {
  OneWorker one;
  one.begin();
  for (std::uint64_t now = 1; now <= 29991; now += 10) one.on(Tick{now});
  CHECK(one.count<Exit>() == 0);
  for (std::uint64_t now = 30001; now <= 30021; now += 10) one.on(Tick{now});
  REQUIRE(one.count<Exit>() == 1);
  CHECK(OneWorker::among<Exit>(one.all)[0].code == 3);
}

TEST_CASE("worker: a plan of other segments than the job's is an error") {
  OneWorker one;
  Plan plan = OneWorker::plan(PlanKind::kFresh, kFirst, {});
  plan.holders.pop_back();
  Join join;
  join.who = {0, 1};
  one.on(Start{join});
  one.receive(Committed{plan});
  REQUIRE(one.count<Exit>() == 1);
  CHECK(OneWorker::among<Exit>(one.all)[0].reason == "a plan has 2 segments, the job 3");
}

}  // namespace
}  // namespace starling::elastic
