// Micro-batches that are computed again: which ones, what their contributions say, and that a vote waits.

#include "elastic/protocol/rechecks.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "elastic/membership/suspicions.h"
#include "elastic/protocol/shares.h"
#include "tests/elastic/one_worker.h"

namespace starling::elastic {
namespace {

LedgerRow row_of(MicroBatch m, std::uint64_t worker, std::uint64_t contribution) {
  LedgerRow row;
  row.micro_batch = m;
  row.worker = worker;
  row.contribution = contribution;
  return row;
}

}  // namespace

// Goal: the share is what the job says, for any number of workers, and everybody is checked by others.
TEST_CASE("rechecks: one micro-batch in so many, of another worker, by all alike") {
  constexpr std::uint32_t kM = 12;
  constexpr std::uint64_t kSteps = 960;
  for (const std::uint32_t world : {1u, 2u, 3u, 4u, 7u}) {
    for (const std::uint32_t share : {1u, 16u, 256u}) {
      CAPTURE(world);
      CAPTURE(share);
      const RecheckRule rule{share, 0, 5};
      const auto shares = first_shares(std::vector<Capacity>(world), kM);
      std::uint64_t count = 0;
      std::set<std::pair<Rank, Rank>> pairs;
      for (Version v{0}; v < kSteps; ++v) {
        std::set<MicroBatch> seen;
        for (Rank self = 0; self < world; ++self) {
          const auto again = rechecks_of(rule, v, shares, self, v.value());
          CHECK(again == rechecks_of(rule, v, shares, self, v.value() + 1));
          for (const MicroBatch m : again) {
            CHECK(seen.insert(m).second);  // by nobody else
            CHECK((world == 1) == (shares[m] == self));
            pairs.insert({self, shares[m]});
            ++count;
          }
        }
      }
      const std::uint64_t wanted = kSteps * kM / share;
      // In shares of unequal size the smallest bounds what a step takes.
      CHECK(count <= wanted);
      CHECK(count + world * 2 >= (share == 1 && kM % world != 0 ? wanted / 2 : wanted));
      if (share == 1) CHECK(pairs.size() == (world == 1 ? 1 : world * (world - 1)));
    }
  }
}

// Of a process that begins in the middle of a run, everything that its machine does differently is new.
TEST_CASE(
    "rechecks: in its first steps, whenever they are, each worker computes at least one again") {
  const RecheckRule rule{1000, 3, 5};
  const auto shares = first_shares(std::vector<Capacity>(3), 6);
  for (const Version begins : {Version{0}, Version{50}})
    for (Rank self = 0; self < 3; ++self)
      for (std::uint64_t computed = 0; computed < 5; ++computed)
        CHECK(rechecks_of(rule, begins + computed, shares, self, computed).size() ==
              (computed < 3 ? 1 : 0));
  // In the very first one what somebody computed first of all.
  CHECK(rechecks_of(rule, Version{0}, first_shares(std::vector<Capacity>(1), 6), 0, 0) ==
        std::vector<MicroBatch>{0});
  CHECK(rechecks_of({0, 3, 5}, Version{0}, shares, 0, 0).empty());
  CHECK(rechecks_of(rule, Version{0}, {1, 1, 1, 1, 1, 1}, 0, 0).empty());  // has no share
}

TEST_CASE("rechecks: what differs is computed once more, and then told") {
  const std::vector<LedgerRow> rows{row_of(0, 7, 100), row_of(1, 7, 101), row_of(2, 8, 102)};
  Rechecks rechecks;
  rechecks.open({0, 2});
  CHECK(rechecks.unanswered() == 2);
  rechecks.answered(0, 100);
  rechecks.answered(2, 999);
  REQUIRE(rechecks.unanswered() == 0);
  CHECK(rechecks.once_more(rows) == std::vector<MicroBatch>{2});
  CHECK(rechecks.unanswered() == 1);
  rechecks.answered(2, 998);
  CHECK(rechecks.once_more(rows).empty());
  const auto differences = rechecks.differences(Version{5}, rows);
  REQUIRE(differences.size() == 1);
  CHECK(differences[0] == Difference{Version{5}, 2, 8, 102, 999, 998});
  // Another epoch: what was found is dropped, what was ordered is waited for.
  rechecks.open({1});
  rechecks.open({});
  CHECK(rechecks.unanswered() == 1);
  rechecks.answered(1, std::nullopt);
  CHECK(rechecks.unanswered() == 0);
  CHECK(rechecks.differences(Version{5}, rows).empty());
}

namespace {

using namespace worker_event;
using namespace worker_command;

// Computes one of another's micro-batches again in step 0; everything else that a vote needs is there.
struct Rechecking : OneWorker {
  explicit Rechecking(Bugs bugs = {}) : OneWorker(bugs, {1000, 1, 5}) {
    begin();
    const auto orders = among<Compute>(all);
    REQUIRE(orders.size() == 1);
    REQUIRE(orders[0].again.size() == 1);
    m = orders[0].again[0];
    CHECK(m >= 2);
    vote_for(kFirst, 0);
  }
  WorkerCommands again(std::optional<std::uint64_t> contribution) {
    return on(Rechecked{0, m, contribution});
  }
  MicroBatch m = 0;
};

}  // namespace

TEST_CASE(
    "worker: a vote waits for what is computed again, and for nothing more if it is the same") {
  Rechecking one;
  CHECK(one.count<SendVote>() == 0);
  CHECK(one.worker.heartbeat().share_left == 1);  // others wait for it
  one.again(0);                                   // as in the rows here
  CHECK(one.count<SendVote>() == 1);
  CHECK(one.worker.heartbeat().differences.empty());
  Bugs bugs;
  bugs.recheck_unawaited = true;
  CHECK(Rechecking(bugs).count<SendVote>() == 1);
}

TEST_CASE(
    "worker: a difference is computed once more, compared with memory, told, and voted over") {
  Rechecking one;
  const auto once_more = OneWorker::among<Compute>(one.again(5));
  REQUIRE(once_more.size() == 1);
  CHECK(once_more[0].micro_batches.empty());
  CHECK(once_more[0].again == std::vector<MicroBatch>{one.m});
  CHECK(OneWorker::among<Compare>(one.again(5)).size() == 1);
  CHECK(one.count<SendVote>() == 0);
  one.forget();
  one.on(Compared{kFirst, 0});
  CHECK(one.count<SendVote>() == 1);
  REQUIRE(one.said<Heartbeat>().size() == 1);
  const auto told = one.said<Heartbeat>()[0].differences;
  REQUIRE(told.size() == 1);
  CHECK(told[0] == Difference{0, one.m, 0, 0, 5, 5, /*by=*/1});
  CHECK(OneWorker::among<SendVote>(one.all)[0].vote.differences == told);
}

// The finder and the leader may be gone before the finder's next heartbeat.
TEST_CASE("worker: a difference in a member's vote is told as one's own, and once") {
  Rechecking one;
  one.again(0);
  one.forget();
  Vote vote{0};
  vote.differences = {{0, 5, 3, 100, 5, 5, /*by=*/2}};
  one.on(VoteArrived{kFirst, Rank{1}, vote});
  REQUIRE(one.said<Heartbeat>().size() == 1);
  CHECK(one.said<Heartbeat>()[0].differences == vote.differences);
  one.on(VoteArrived{kFirst, Rank{2}, vote});
  CHECK(one.said<Heartbeat>().size() == 1);
  CHECK(one.worker.heartbeat().differences == vote.differences);  // also to a leader to come
}

// In an epoch that begins the step again, nothing is computed a second time, but what was ordered
// before reads the step's parameters until it is over.
TEST_CASE("worker: what was ordered in an epoch that is over is waited for") {
  Rechecking one;
  one.on(Broken{kFirst, Rank{1}});
  one.on(Stopped{kFirst});
  const EpochId second{1, 2};
  one.forget();
  one.enter(OneWorker::plan(PlanKind::kForced, second, kFirst));
  const auto orders = OneWorker::among<Compute>(one.all);
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].again.empty());
  one.reduced(second, 0);
  for (Rank from : {Rank{1}, Rank{2}}) one.ledger(second, 0, from);
  CHECK(one.count<SendVote>() == 0);
  one.again(std::nullopt);
  CHECK(one.count<SendVote>() == 1);
}

TEST_CASE("worker: one that joins a run in its middle computes again in its own first steps") {
  OneWorker one({}, {1000, 2, 5});
  Join join;
  join.who = {0, 1};
  one.on(Start{join});
  one.receive(Welcome{{1, 1}, ""});
  one.receive(Freeze{kFirst});
  one.receive(
      Committed{OneWorker::plan(PlanKind::kFresh, kFirst, {}, /*base=*/7, BeginAt::kGather)});
  one.on(Initialised{kFirst, {}});
  one.on(Connected{kFirst});
  one.on(Gathered{kFirst, Version{7}});
  const auto orders = OneWorker::among<Compute>(one.all);
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].version == Version{7});
  CHECK(orders[0].again.size() == 1);
}

TEST_CASE("suspicions: who is wrong is told where it can be") {
  const auto differ = [](Version v, std::uint64_t worker, std::uint64_t first,
                         std::uint64_t second) {
    return Difference{v, 0, worker, 100, first, second};
  };
  SUBCASE("who does not agree with itself") {
    Suspicions s;
    CHECK(s.take(1, differ(Version{0}, 2, 5, 6))->wrong == 1);
    CHECK(!s.take(1, differ(Version{0}, 2, 5, 6)));  // told again
    CHECK(s.take(3, differ(Version{0}, 2, 5, 100))->wrong == 3);
    CHECK(s.take(4, differ(Version{0}, 4, 5, 5))->wrong == 4);  // alone
  }
  SUBCASE("whose rows two others compute otherwise") {
    Suspicions s;
    CHECK(!s.take(1, differ(Version{0}, 2, 5, 5))->wrong);
    CHECK(!s.take(1, differ(Version{1}, 2, 5, 5))->wrong);
    CHECK(s.take(3, differ(Version{2}, 2, 5, 5))->wrong == 2);
    CHECK(s.take(1, differ(Version{3}, 2, 5, 5))->wrong == 2);
  }
  SUBCASE("who computes otherwise than two others") {
    Suspicions s;
    CHECK(!s.take(1, differ(Version{0}, 2, 5, 5))->wrong);
    CHECK(s.take(1, differ(Version{1}, 3, 5, 5))->wrong == 1);
  }
  SUBCASE("two who never meet a third") {
    Suspicions s;
    CHECK(!s.take(1, differ(Version{0}, 2, 5, 5))->wrong);
    CHECK(!s.take(2, differ(Version{1}, 1, 5, 5))->wrong);
  }
}

}  // namespace starling::elastic
