// Who computes what, seen from one of three workers: an epoch's first step as its plan says, every
// later one by the votes that passed the step before (docs/design.md, section 5, Shares).

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/elastic/one_worker.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

using namespace worker_event;
using namespace worker_command;

using List = std::vector<MicroBatch>;

// Up to the pass of a step of which this worker computes these micro-batches. The
// second says that one takes 10 ns there, the third 40. Returns what it is to compute next.
List next_share(OneWorker& one, EpochId epoch, Version v, const List& own, EpochId ready_for = {},
                std::uint64_t own_ns = 40) {
  for (const MicroBatch m : own) one.on(MicroBatchDone{v, OneWorker::row(m), own_ns});
  one.reduced(epoch, v);
  std::vector<LedgerRow> rows;
  for (MicroBatch m = 0; m < kMicroBatches; ++m)
    if (std::find(own.begin(), own.end(), m) == own.end()) rows.push_back(OneWorker::row(m));
  one.on(LedgerArrived{epoch, 1, v, rows});
  for (const Rank from : {Rank{1}, Rank{2}}) {
    Vote vote{v};
    vote.micro_batch_ns = from == 1 ? 10 : 40;
    vote.ready_for = ready_for;
    one.on(VoteArrived{epoch, from, vote});
  }
  one.on(Gathered{one.worker.entered(), v + 1});
  const auto computed = OneWorker::among<Compute>(one.all);
  REQUIRE(!computed.empty());
  REQUIRE(computed.back().version == v + 1);
  return computed.back().micro_batches;
}

TEST_CASE("worker: a step is shared by the speeds in the votes of the step before") {
  OneWorker one;
  one.begin();
  CHECK(next_share(one, kFirst, 0, {0, 1}) == List{0});
  CHECK(one.worker.run()->shares == std::vector<Rank>{0, 1, 1, 1, 1, 2});
  const auto votes = OneWorker::among<SendVote>(one.all);
  REQUIRE(votes.size() == 1);
  CHECK(votes[0].vote.micro_batch_ns == 40);
  CHECK(next_share(one, kFirst, 1, {0}) == List{0});
}

TEST_CASE("worker: whoever leaves a vote out shares the next step otherwise") {
  Bugs bugs;
  bugs.shares_by_some_votes = true;
  OneWorker one(bugs);
  one.begin();
  CHECK(next_share(one, kFirst, 0, {0, 1}, {}, /*own_ns=*/10) == List{0});
  OneWorker right;
  right.begin();
  CHECK(next_share(right, kFirst, 0, {0, 1}, {}, /*own_ns=*/10) == List{0, 1, 2});
}

TEST_CASE("worker: after a switch, the plan shares the first step and votes the second") {
  for (const bool bug : {false, true}) {
    Bugs bugs;
    bugs.shares_not_of_plan = bug;
    OneWorker one(bugs);
    one.begin();
    Plan plan = OneWorker::plan(PlanKind::kPrepared, kSecond, kFirst);
    plan.shares = {0, 0, 0, 1, 2, 2};
    one.receive(Committed{plan});
    one.on(Connected{kSecond});
    const List first = next_share(one, kFirst, 0, {0, 1}, kSecond);
    REQUIRE(one.worker.entered() == kSecond);
    CHECK(first == (bug ? List{0, 1} : List{0, 1, 2}));
    if (!bug) CHECK(next_share(one, kSecond, 1, {0, 1, 2}) == List{0});
  }
}

TEST_CASE("worker: a forced plan shares its first step, done micro-batches among it") {
  OneWorker one;
  one.begin();
  CHECK(next_share(one, kFirst, 0, {0, 1}) == List{0});
  one.on(MicroBatchDone{1, OneWorker::row(0), 40});
  one.on(Broken{kFirst, 1});
  one.on(Stopped{kFirst});
  const auto reports = one.said<Report>();
  REQUIRE(!reports.empty());
  CHECK(reports.back().micro_batch_ns == 40);
  Plan plan = OneWorker::plan(PlanKind::kForced, kSecond, kFirst, /*base=*/1);
  plan.shares = {0, 1, 0, 1, 2, 2};
  one.enter(plan);
  CHECK(OneWorker::among<Compute>(one.all).back().micro_batches == List{2});
  CHECK(next_share(one, kSecond, 1, {0, 2}) == List{0});
}

// R18. Whose sums are waited for follows from the shares, so all members have the same.
TEST_CASE("worker: who has no share does not contribute") {
  OneWorker one;
  one.begin();
  CHECK(OneWorker::among<OpenStep>(one.all).back().contributors ==
        std::vector<bool>{true, true, true});
  one.on(Broken{kFirst, 1});
  one.on(Stopped{kFirst});
  Plan plan = OneWorker::plan(PlanKind::kForced, kSecond, kFirst);
  plan.members[1].role = WorkerRole::kHold;
  plan.shares = {0, 0, 0, 2, 2, 2};
  one.enter(plan);
  CHECK(OneWorker::among<OpenStep>(one.all).back().contributors ==
        std::vector<bool>{true, false, true});
}

TEST_CASE("worker: whoever does not say its speed is dealt one micro-batch among those who do") {
  OneWorker one;
  one.begin();
  CHECK(next_share(one, kFirst, 0, {0, 1}, {}, /*own_ns=*/0) == List{0});
  CHECK(one.worker.run()->shares == std::vector<Rank>{0, 1, 1, 1, 1, 2});
}

}  // namespace
}  // namespace starling::elastic
