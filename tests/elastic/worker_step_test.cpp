// The rules of a step, each as a schedule of events at one worker: R4 to R8, R14. Every case says
// how often the rule did not hold: never with the rule in force, at least once with it broken on
// purpose (elastic/protocol/bugs.h).

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tests/elastic/one_worker.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

using namespace worker_event;
using namespace worker_command;

// R4. Method: what a vote needs arrives in every order that is possible; the vote is cast with the
// last of it.
int early_or_missing_votes(const Bugs& bugs) {
  enum Need { kLedger1, kLedger2, kShare, kTotals };
  std::array<Need, 4> order{kLedger1, kLedger2, kShare, kTotals};
  int wrong = 0, orders = 0;
  do {
    // There is no total without the own contribution.
    if (std::find(order.begin(), order.end(), kShare) >
        std::find(order.begin(), order.end(), kTotals))
      continue;
    ++orders;
    OneWorker one(bugs);
    one.begin();
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (order[i] == kShare) one.own_share(0);
      if (order[i] == kTotals) one.reduced(kFirst, 0);
      if (order[i] == kLedger1) one.ledger(kFirst, 0, 1);
      if (order[i] == kLedger2) one.ledger(kFirst, 0, 2);
      wrong += one.count<SendVote>() != (i + 1 == order.size() ? 1u : 0u);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(orders == 12);
  return wrong;
}

TEST_CASE("worker: R4, it votes when totals and ledger are there, not before") {
  CHECK(early_or_missing_votes({}) == 0);
  CHECK(early_or_missing_votes(broken(&Bugs::r4_vote_without_totals)) > 0);
}

// R14. Method: a segment moves here in this step; its state arrives after everything else.
int votes_without_moved_state(const Bugs& bugs) {
  OneWorker one(bugs);
  one.begin();
  one.pass(kFirst, 0);
  one.on(Broken{kFirst, 1});
  one.on(Stopped{kFirst});
  Plan plan = OneWorker::plan(PlanKind::kForced, {1, 2}, kFirst, /*base=*/1);
  plan.holders[2] = {2, 1};
  plan.moves = {{{2, 1}, /*source=*/2, /*target=*/0, /*step_offset=*/0}};
  one.enter(plan);
  one.vote_for(plan.id, 1);
  const int without = static_cast<int>(one.count<SendVote>()) - 1;
  one.on(MovedIn{plan.id, 1, {2, 1}});
  CHECK(one.count<SendVote>() == 2);
  return without;
}

TEST_CASE("worker: R14, a move's target votes when the state is there") {
  CHECK(votes_without_moved_state({}) == 0);
  CHECK(votes_without_moved_state(broken(&Bugs::r14_vote_without_move)) == 1);
}

TEST_CASE("worker: R14, a move's source sends it when all parameters are here") {
  OneWorker one;
  one.begin();
  one.on(Broken{kFirst, 1});
  one.on(Stopped{kFirst});
  Plan plan = OneWorker::plan(PlanKind::kForced, {1, 2}, kFirst);
  plan.holders[0] = {0, 1};
  plan.moves = {{{0, 1}, /*source=*/0, /*target=*/2, /*step_offset=*/1}};
  one.enter(plan);
  one.vote_for(plan.id, 0);
  for (Rank from : {Rank{1}, Rank{2}}) one.vote(plan.id, 0, from);
  CHECK(one.count<StartGather>() == 1);
  CHECK(one.count<SendMove>() == 0);
  const auto now = one.on(Gathered{plan.id, 1});
  REQUIRE(now.size() == 1);
  REQUIRE(std::holds_alternative<SendMove>(now[0]));
  CHECK(std::get<SendMove>(now[0]).version == 1);
}

// Goal: the first layers are computed while the parameters of the others come. Method: the last row
// and the last parameters, in both orders.
TEST_CASE("worker: a step is computed from its opening on, and its share ends with the gather") {
  for (const bool gathered_last : {false, true}) {
    OneWorker one;
    one.begin();
    one.vote_for(kFirst, 0);
    for (Rank from : {Rank{1}, Rank{2}}) one.vote(kFirst, 0, from);
    REQUIRE(one.worker.version() == 1);
    CHECK(one.count<StartGather>() == 1);
    CHECK(one.count<Compute>() == 2);
    CHECK(one.count<StartReduce>() == 2);
    CHECK(one.worker.heartbeat().share_left == 0);  // others are waited for, not this worker
    if (gathered_last) one.own_share(1);
    CHECK(one.count<EndShare>() == 1);
    one.on(Gathered{kFirst, 1});
    CHECK(one.count<Compute>() == 2);
    if (!gathered_last) {
      CHECK(one.worker.heartbeat().share_left == 2);
      one.own_share(1);
    }
    CHECK(one.count<EndShare>() == 2);
  }
}

// Goal: sums may leave as soon as they are final, and what says that a share is done comes last.
TEST_CASE("worker: the reduce begins with the computation and the share ends with its last row") {
  OneWorker one;
  one.begin();
  REQUIRE(one.count<Compute>() == 1);
  const auto reduces = OneWorker::among<StartReduce>(one.all);
  REQUIRE(reduces.size() == 1);
  CHECK(reduces[0].version == 0);
  CHECK(reduces[0].micro_batches == 2);
  one.done(0, 0);
  CHECK(one.count<EndShare>() == 0);
  one.done(0, 1);
  const auto ends = OneWorker::among<EndShare>(one.all);
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].rows.size() == 2);
  CHECK(one.count<StartReduce>() == 1);
}

// R5. Method: every set of votes from the two others; the step passes with both.
int wrong_passes(const Bugs& bugs) {
  int wrong = 0;
  for (int set = 0; set < 4; ++set)
    for (const bool own_last : {false, true}) {
      OneWorker one(bugs);
      one.begin();
      if (!own_last) one.vote_for(kFirst, 0);
      for (Rank from : {Rank{1}, Rank{2}})
        if (set >> (from - 1) & 1) one.vote(kFirst, 0, from);
      if (own_last) one.vote_for(kFirst, 0);
      wrong += (one.worker.version() == 1) != (set == 3);
      wrong += one.count<Apply>() != (set == 3 ? 1u : 0u);
    }
  return wrong;
}

TEST_CASE("worker: R5, a step passes with the vote of every member") {
  CHECK(wrong_passes({}) == 0);
  CHECK(wrong_passes(broken(&Bugs::r5_pass_without_all)) > 0);
}

// Votes for step 1, hears one of the two other votes or none, and loses a connection.
OneWorker voted_in_vain(const Bugs& bugs, bool one_vote) {
  OneWorker one(bugs);
  one.begin();
  one.pass(kFirst, 0);
  one.forget();
  one.vote_for(kFirst, 1);
  if (one_vote) one.vote(kFirst, 1, 2);
  one.on(Broken{kFirst, 1});
  one.on(Stopped{kFirst});
  return one;
}

// R6, R7. Method: the vote does not pass; whether the step is done again (R12: some member had not
// voted) or the vote is finished (all had), it is applied and cleared with the pass, once.
struct Effects {
  std::size_t applied_before = 0, cleared_before = 0;  // the pass
  std::size_t computed_again = 0;
  bool once_with_it = true;
};

Effects effects_of_a_vote_in_vain(const Bugs& bugs) {
  Effects effects;
  for (const bool one_vote : {false, true})
    for (const Version base : {Version{1}, Version{2}}) {
      CAPTURE(base);
      OneWorker one = voted_in_vain(bugs, one_vote);
      const auto reports = one.said<Report>();
      REQUIRE(reports.size() == 1);
      CHECK(reports[0].pending);
      CHECK(reports[0].version == 1);
      one.enter(OneWorker::plan(PlanKind::kForced, {1, 2}, kFirst, base,
                                base == 1 ? BeginAt::kCompute : BeginAt::kVote));
      for (const auto& compute : OneWorker::among<Compute>(one.all))
        effects.computed_again += compute.micro_batches.size();
      CHECK(one.count<DropTotals>() == (base == 1 ? 1 : 0));
      if (base == 1) {
        one.reduced({1, 2}, 1);
        for (Rank from : {Rank{1}, Rank{2}}) one.ledger({1, 2}, 1, from);
      }
      effects.applied_before += one.count<Apply>();
      effects.cleared_before += one.count<ClearAccumulators>();
      for (Rank from : {Rank{1}, Rank{2}}) one.vote({1, 2}, 1, from);
      const bool once = one.count<Apply>() == 1 && one.count<ClearAccumulators>() == 1;
      effects.once_with_it = effects.once_with_it && one.worker.version() == 2 && once;
    }
  return effects;
}

TEST_CASE("worker: R6, R7, state and accumulators change when the vote has passed, not before") {
  const Effects kept = effects_of_a_vote_in_vain({});
  CHECK(kept.applied_before == 0);
  CHECK(kept.cleared_before == 0);
  CHECK(kept.computed_again == 0);
  CHECK(kept.once_with_it);
  CHECK(effects_of_a_vote_in_vain(broken(&Bugs::r6_apply_at_vote)).applied_before > 0);
  const Effects cleared = effects_of_a_vote_in_vain(broken(&Bugs::r7_clear_at_vote));
  CHECK(cleared.cleared_before > 0);
  CHECK(cleared.computed_again > 0);
}

// R8. Method: one micro-batch of two is done, the other in progress, when a connection breaks; it
// ends before the report, or after it.
std::size_t computed_again(const Bugs& bugs, bool ends_before_report) {
  OneWorker one(bugs);
  one.begin();
  one.pass(kFirst, 0);
  one.done(1, 0);
  one.forget();
  one.on(Broken{kFirst, 1});
  if (ends_before_report) one.done(1, 1);
  one.on(Stopped{kFirst});
  if (!ends_before_report) one.done(1, 1);
  one.enter(OneWorker::plan(PlanKind::kForced, {1, 2}, kFirst, /*base=*/1));
  std::size_t again = 0;
  for (const auto& compute : OneWorker::among<Compute>(one.all))
    again += compute.micro_batches.size();
  if (again > 0) return again;
  const auto reports = one.said<Report>();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].share == std::vector<MicroBatch>{0, 1});
  CHECK(reports[0].done.size() == (ends_before_report ? 2 : 1));
  CHECK(one.count<EndShare>() == 1);
  return again;
}

TEST_CASE("worker: R8, a micro-batch that was begun is not begun again") {
  for (const bool before : {true, false}) {
    CHECK(computed_again({}, before) == 0);
    CHECK(computed_again(broken(&Bugs::r8_forget_work), before) == 2);
  }
}

// Goal: a step that changed nothing does not look like one that was perfect.
TEST_CASE(
    "worker: the loss of a step with a micro-batch that is not finite is NaN, and all agree") {
  for (const double loss : {std::numeric_limits<double>::infinity(), 1.0}) {
    CAPTURE(loss);
    OneWorker one;
    one.begin();
    LedgerRow broken = OneWorker::row(0);
    broken.loss = loss;
    broken.finite = false;
    one.on(MicroBatchDone{0, broken});
    one.done(0, 1);
    one.reduced(kFirst, 0);
    for (Rank from : {Rank{1}, Rank{2}}) one.ledger(kFirst, 0, from);
    for (Rank from : {Rank{1}, Rank{2}}) one.vote(kFirst, 0, from);
    const auto told = one.said<Progress>();
    REQUIRE(told.size() == 1);
    CHECK(told[0].record.skipped);
    CHECK(std::isnan(told[0].record.loss));
    CHECK(told[0].record == StepRecord(told[0].record));  // a NaN that equals itself
    CHECK(one.worker.version() == 1);
  }
}

// Goal: nobody goes on because the leader has not heard of it.
TEST_CASE("worker: a skipped step is the last where the job stops at one") {
  WorkerConfig config = OneWorker::config({});
  config.stop_on_nonfinite = true;
  config.checkpoint.every = 2;
  OneWorker one;
  one.worker = Worker(config);
  one.begin();
  one.pass(kFirst, 0);
  LedgerRow broken = OneWorker::row(0);
  broken.finite = false;
  one.on(MicroBatchDone{1, broken});
  one.done(1, 1);
  one.reduced(kFirst, 1);
  for (Rank from : {Rank{1}, Rank{2}}) one.ledger(kFirst, 1, from);
  one.forget();
  for (Rank from : {Rank{1}, Rank{2}}) one.vote(kFirst, 1, from);
  CHECK(one.worker.version() == 2);
  one.on(Gathered{kFirst, 2});
  CHECK(one.count<Compute>() == 0);
  CHECK(one.count<StartReduce>() == 0);
  CHECK(one.count<WriteCheckpoint>() == 0);
  CHECK(one.count<ComputeDigest>() == 1);
  // It says the record until it hears of the end: a new leader has heard none.
  for (Version v : {Version{0}, Version{1}}) one.receive(Noted{v});
  one.forget();
  one.on(DigestReady{kFirst, 2, {}, {}});
  const auto told = one.said<Progress>();
  REQUIRE(told.size() == 1);
  CHECK(told[0].record.skipped);
  CHECK(one.said<Finished>().size() == 1);
}

// Goal: all compute a step with the scale that the record of the step before leads to.
TEST_CASE("worker: the scale of the loss is halved by a skipped step, and is in the record") {
  WorkerConfig config = OneWorker::config({});
  config.loss_scale = {.on = true, .first = 10, .every = 2};
  OneWorker one;
  one.worker = Worker(config);
  const auto scales = [&] {
    std::vector<LossScale> all;
    for (const auto& c : OneWorker::among<Compute>(one.all)) all.push_back(c.scale);
    return all;
  };
  one.begin();
  LedgerRow broken = OneWorker::row(0);
  broken.finite = false;
  one.on(MicroBatchDone{0, broken});
  one.done(0, 1);
  one.reduced(kFirst, 0);
  for (Rank from : {Rank{1}, Rank{2}}) one.ledger(kFirst, 0, from);
  for (Rank from : {Rank{1}, Rank{2}}) one.vote(kFirst, 0, from);
  one.on(Gathered{kFirst, 1});
  one.pass(kFirst, 1);
  one.pass(kFirst, 2);
  CHECK(scales() == std::vector<LossScale>{{10, 1}, {9, 1}, {9, 2}, {10, 1}});
  const auto told = one.said<Progress>();
  REQUIRE(told.size() == 3);
  for (std::size_t v = 0; v < told.size(); ++v) CHECK(told[v].record.scale == scales()[v]);
}

}  // namespace
}  // namespace starling::elastic
