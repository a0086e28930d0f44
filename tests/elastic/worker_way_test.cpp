// R17 at one of three workers: which way a step's bytes go, by the votes that passed the step before.

#include <doctest/doctest.h>

#include "core/wire/limits.h"
#include "tests/elastic/one_worker.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

using namespace worker_event;
using namespace worker_command;

// Passes step v, the others' votes naming these attempts. Returns the way of the next step, which its
// commands all name.
std::uint32_t next_way(OneWorker& one, EpochId epoch, Version v, std::uint32_t second,
                       std::uint32_t third, EpochId ready_for = {}) {
  one.vote_for(epoch, v);
  for (const Rank from : {Rank{1}, Rank{2}}) {
    Vote vote{v};
    vote.ready_attempt = from == 1 ? second : third;
    vote.ready_for = ready_for;
    one.on(VoteArrived{epoch, from, vote});
  }
  one.on(Gathered{one.worker.entered(), v + 1});
  const auto opened = OneWorker::among<OpenStep>(one.all).back();
  const auto gathered = OneWorker::among<StartGather>(one.all).back();
  const auto reduced = OneWorker::among<StartReduce>(one.all).back();
  CHECK(opened.version == v + 1);
  CHECK(gathered.attempt == opened.attempt);
  CHECK(reduced.attempt == opened.attempt);
  return opened.attempt;
}

std::uint32_t last_named(const OneWorker& one) {
  return OneWorker::among<SendVote>(one.all).back().vote.ready_attempt;
}

TEST_CASE(
    "worker: R17, a step goes over the device transport if all votes before it name one attempt") {
  OneWorker one;
  one.begin();
  CHECK(OneWorker::among<OpenStep>(one.all).back().attempt == 0);  // the epoch's first
  one.on(TransportReady{kFirst, 1});
  CHECK(next_way(one, kFirst, 0, 1, 1) == 1);
  CHECK(last_named(one) == 1);
  CHECK(next_way(one, kFirst, 1, 1, 0) == 0);
  CHECK(next_way(one, kFirst, 2, 1, 2) == 0);
  CHECK(next_way(one, kFirst, 3, 1, 1) == 1);
}

TEST_CASE("worker: R17, its own vote counts as the others' do") {
  for (const bool bug : {false, true}) {
    Bugs bugs;
    bugs.r17_some_votes = bug;
    OneWorker one(bugs);
    one.begin();
    CHECK(next_way(one, kFirst, 0, 1, 1) == (bug ? 1 : 0));
  }
}

TEST_CASE("worker: a vote names the newest attempt that is ready here, and none that was lost") {
  OneWorker one;
  one.begin();
  one.on(TransportReady{kFirst, 1});
  one.on(TransportLost{kFirst, 1});
  CHECK(next_way(one, kFirst, 0, 0, 0) == 0);
  CHECK(last_named(one) == 0);
  one.on(TransportReady{kFirst, 2});
  one.on(TransportLost{kFirst, 1});  // late word of the one before it
  CHECK(next_way(one, kFirst, 1, 2, 2) == 2);
  CHECK(last_named(one) == 2);
  one.on(TransportReady{kFirst, limits::kAttempts + 1});
  one.on(TransportReady{kSecond, 3});  // of no epoch that goes on here
  CHECK(next_way(one, kFirst, 2, 3, 3) == 0);
  CHECK(last_named(one) == 2);
}

TEST_CASE(
    "worker: R17, what was ready before a switch is named from the new epoch's first vote on") {
  OneWorker one;
  one.begin();
  one.on(TransportReady{kFirst, 4});
  one.receive(Committed{OneWorker::plan(PlanKind::kPrepared, kSecond, kFirst)});
  one.on(Connected{kSecond});
  one.on(TransportReady{kSecond, 1});
  CHECK(next_way(one, kFirst, 0, 4, 4, kSecond) == 0);  // the first of the new epoch
  REQUIRE(one.worker.entered() == kSecond);
  CHECK(next_way(one, kSecond, 1, 1, 1) == 1);
}

TEST_CASE("worker: R17, a world of one needs no transport") {
  OneWorker one;
  one.begin();
  one.on(Broken{kFirst, 1});
  one.on(Stopped{kFirst});
  Plan plan = OneWorker::plan(PlanKind::kForced, kSecond, kFirst);
  plan.members.resize(1);
  plan.holders = {{0}, {0}, {0}};
  plan.shares = first_shares(std::vector<Capacity>(1), kMicroBatches);
  one.enter(plan);
  CHECK(OneWorker::among<OpenStep>(one.all).back().attempt != 0);
  CHECK(OneWorker::among<StartReduce>(one.all).back().attempt != 0);
}

// Goal: an epoch whose transport fails ends, and nobody is blamed for it.
TEST_CASE("worker: a break that is no peer's stops the epoch and names nobody") {
  OneWorker one;
  one.begin();
  one.on(Broken{kFirst, kNoRank});
  CHECK(one.count<Stop>() == 1);
  one.on(Stopped{kFirst});
  const auto reports = one.said<Report>();
  REQUIRE(!reports.empty());
  CHECK(reports.back().broken.empty());
}

}  // namespace
}  // namespace starling::elastic
