// The end is told to everybody; only who was there at the last version has the trained model.

#include <doctest/doctest.h>

#include "tests/elastic/one_worker.h"

namespace starling::elastic {
namespace {

using namespace worker_event;
using worker_command::Exit;

constexpr std::uint64_t kSteps = 2;

OneWorker one_of_two_steps(bool evaluates = false) {
  OneWorker one;
  WorkerConfig config = OneWorker::config({});
  config.steps = kSteps;
  config.evaluates = evaluates;
  one.worker = Worker(config);
  one.begin();
  return one;
}

// Of a job whose steps coordinators have noted: else it waits (worker_told_test.cpp).
Exit end(OneWorker& one) {
  for (Version v = 0; v < kSteps; ++v) one.receive(Noted{v});
  const auto exits = OneWorker::among<Exit>(one.receive(Ended{0, "done", {1, 2}, 0.5, {3, 4}}));
  REQUIRE(exits.size() == 1);
  CHECK(exits[0].code == 0);
  REQUIRE(exits[0].end);
  CHECK(exits[0].end->parameters == Digest{3, 4});
  return exits[0];
}

TEST_CASE("worker: who has finished has the trained model when the end is told") {
  OneWorker one = one_of_two_steps();
  for (Version v = 0; v < kSteps; ++v) one.pass(kFirst, v);
  one.on(DigestReady{kFirst, kSteps, {1, 2}, {3, 4}});
  for (Version v = 0; v < kSteps; ++v) one.receive(Noted{v});
  REQUIRE(one.said<Finished>().size() == 1);
  CHECK(one.said<Finished>()[0].parameters_part == Digest{3, 4});
  const Exit exit = end(one);
  CHECK(exit.trained);
  CHECK_FALSE(exit.leaving);
}

// Goal: no job that evaluates ends without an evaluation of its last version, whichever worker is lost.
TEST_CASE("worker: rank 0 evaluates the last version before it finishes, and only once") {
  OneWorker one = one_of_two_steps(/*evaluates=*/true);
  for (Version v = 0; v < kSteps; ++v) one.pass(kFirst, v);
  CHECK(one.count<worker_command::Evaluate>() == 1);
  CHECK(one.count<worker_command::ComputeDigest>() == 0);
  for (Version v = 0; v < kSteps; ++v) one.receive(Noted{v});
  one.forget();
  one.on(worker_event::Evaluated{kSteps, {0.5, 2}});
  CHECK(one.count<worker_command::ComputeDigest>() == 1);
  one.on(DigestReady{kFirst, kSteps, {1, 2}, {3, 4}});
  REQUIRE(one.said<Finished>().size() == 1);
  CHECK(one.said<Finished>()[0].evaluation == std::vector<double>{0.5, 2});
  CHECK(one.count<worker_command::Evaluate>() == 0);
}

TEST_CASE(
    "worker: the first member that computes evaluates, so rank 0 does not where it holds alone") {
  OneWorker one = one_of_two_steps(/*evaluates=*/true);
  one.on(Broken{kFirst, 1});
  one.on(Stopped{kFirst});
  Plan plan = OneWorker::plan(PlanKind::kForced, kSecond, kFirst);
  plan.members[0].role = WorkerRole::kHold;
  plan.shares = {1, 1, 1, 2, 2, 2};
  one.enter(plan);
  for (Version v = 0; v < kSteps; ++v) {
    one.reduced(kSecond, v);
    std::vector<LedgerRow> rows;
    for (MicroBatch m = 0; m < kMicroBatches; ++m) rows.push_back(OneWorker::row(m));
    one.on(LedgerArrived{kSecond, 1, v, rows});
    for (const Rank from : {Rank{1}, Rank{2}}) one.vote(kSecond, v, from);
    one.on(Gathered{kSecond, v + 1});
  }
  CHECK(one.count<worker_command::Evaluate>() == 0);
  CHECK(one.count<worker_command::ComputeDigest>() == 1);
}

// Others hear of the end first, and go.
TEST_CASE("worker: who has finished and sees a connection close has the trained model") {
  OneWorker one = one_of_two_steps();
  for (Version v = 0; v < kSteps; ++v) one.pass(kFirst, v);
  one.on(DigestReady{kFirst, kSteps, {1, 2}, {3, 4}});
  one.on(Broken{kFirst, 1});
  one.on(Stopped{kFirst});
  CHECK(end(one).trained);
}

TEST_CASE("worker: who was left out before the last step does not have the model") {
  OneWorker one = one_of_two_steps();
  one.pass(kFirst, 0);
  one.on(Broken{kFirst, 1});
  one.on(Stopped{kFirst});
  CHECK_FALSE(end(one).trained);
}

TEST_CASE("worker: who comes when the job is over does not have the model") {
  OneWorker one;
  Join join;
  join.who = {0, 1};
  one.on(Start{join});
  CHECK_FALSE(end(one).trained);
}

// The last vote passed here, and with it the switch to an epoch without this worker: the parameters
// of the last version were never sent to it.
TEST_CASE("worker: a leaver that goes with the last vote does not have the model") {
  OneWorker one = one_of_two_steps();
  one.pass(kFirst, 0);
  one.on(Tick{1});
  one.on(NoticeGiven{{"SIGTERM", "", 30'000, true}});
  const EpochId second{1, 2};
  Plan without = OneWorker::plan(PlanKind::kPrepared, second, kFirst);
  without.members.erase(without.members.begin());
  without.holders = {{0, 1}, {1, 0}, {0, 1}};
  one.receive(Committed{without});
  one.vote_for(kFirst, 1);
  for (Rank from : {Rank{1}, Rank{2}}) one.vote(kFirst, 1, from, second);
  REQUIRE(one.worker.version() == kSteps);
  REQUIRE_FALSE(one.worker.run());
  const Exit exit = end(one);
  CHECK_FALSE(exit.trained);
  CHECK(exit.leaving);
}

TEST_CASE("worker: the last parameters count when all of them have arrived") {
  OneWorker one = one_of_two_steps();
  one.pass(kFirst, 0);
  one.vote_for(kFirst, 1);
  for (Rank from : {Rank{1}, Rank{2}}) one.vote(kFirst, 1, from);
  REQUIRE(one.worker.version() == kSteps);
  CHECK_FALSE(end(one).trained);
}

TEST_CASE("worker: a job that has failed leaves no model") {
  OneWorker one = one_of_two_steps();
  for (Version v = 0; v < kSteps; ++v) {
    one.pass(kFirst, v);
    one.receive(Noted{v});
  }
  const auto exits = OneWorker::among<Exit>(one.receive(Ended{4, "state lost", {}, 0, {}}));
  REQUIRE(exits.size() == 1);
  CHECK_FALSE(exits[0].trained);
}

TEST_CASE(
    "worker: it finishes when its data are read, or after data_wait_ms, and says them before") {
  WorkerConfig config = OneWorker::config({});
  config.steps = kSteps;
  config.data_wait_ms = 1000;
  OneWorker one;
  one.worker = Worker(config);
  one.on(Tick{1});
  one.begin();
  for (Version v = 0; v < kSteps; ++v) one.pass(kFirst, v);
  for (Version v = 0; v < kSteps; ++v) one.receive(Noted{v});
  one.on(DigestReady{kFirst, kSteps, {1, 2}, {3, 4}});
  one.on(Tick{500});
  CHECK(one.said<Finished>().empty());
  SUBCASE("they are read") {
    one.on(DataHashed{{5, 6}});
    CHECK(one.said<Heartbeat>().back().data == Digest{5, 6});
  }
  SUBCASE("they take longer") {
    one.on(Tick{1100});
  }
  CHECK(one.said<Finished>().size() == 1);
}

}  // namespace
}  // namespace starling::elastic
