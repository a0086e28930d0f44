// What is to be computed of a step and what is done: six micro-batches, three ranks, this is rank 0.

#include "elastic/protocol/step_work.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace starling::elastic {
namespace {

using MicroBatches = std::vector<MicroBatch>;

LedgerRow loss_row(MicroBatch m, double loss = 1, bool finite = true) {
  LedgerRow row;
  row.micro_batch = m;
  row.loss = loss;
  row.tokens = 10;
  row.finite = finite;
  return row;
}

struct Six {
  StepWork work{6};
  Six() { work.open(); }
  void deal(const std::vector<Rank>& shares) { todo = work.deal(shares, 0); }
  MicroBatches todo;
};

TEST_CASE("step work: a share is done when everything of it is in the accumulators") {
  Six six;
  six.deal({0, 0, 1, 1, 2, 2});
  CHECK(six.todo == MicroBatches{0, 1});
  CHECK(six.work.left() == 2);
  CHECK(six.work.add(loss_row(1)));
  CHECK_FALSE(six.work.share_done());
  CHECK_FALSE(six.work.add(loss_row(2)));  // another's: it does not count
  CHECK(six.work.add(loss_row(0)));
  CHECK(six.work.share_done());
  REQUIRE(six.work.share_rows().size() == 2);
  CHECK(six.work.share_rows()[0] == loss_row(0));
}

// Goal: an evaluation is the same however its batches are shared. Method: numbers whose sum in doubles
// depends on the order, in rows that arrive in another order; one batch that is not finite.
TEST_CASE("step work: the record has the exact means of held-out batches") {
  const std::vector<std::vector<double>> batches = {{1e17, 1}, {}, {1, 2, -1e17, 4},
                                                    {3, 1},    {}, {}};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const bool backwards : {false, true}) {
    StepWork work(6, 2);
    work.open();
    work.deal(std::vector<Rank>(6, 0), 0);
    for (MicroBatch i = 0; i < 6; ++i) {
      LedgerRow row = loss_row(backwards ? MicroBatch(5 - i) : i);
      row.held_out = batches[row.micro_batch];
      work.enter(row);
    }
    CHECK(work.record(3).evaluation == std::vector<double>{1, 2});
    LedgerRow row = loss_row(5);
    row.held_out = {nan, 2};
    work.enter(row);
    const auto other = work.record(3);
    REQUIRE(other.evaluation.size() == 2);
    CHECK(std::isnan(other.evaluation[0]));
    CHECK(other.evaluation[1] == 2);
    CHECK_FALSE(other.skipped);
  }
  StepWork none(1);
  none.open();
  none.enter(loss_row(0));
  CHECK(none.record(0).evaluation.empty());
}

TEST_CASE("step work: a worker without a share has done it") {
  Six six;
  six.deal({1, 1, 1, 2, 2, 2});
  CHECK_FALSE(six.work.has_share());
  CHECK(six.work.share_done());
}

TEST_CASE("step work: R8, what is done is not computed again when the share is dealt anew") {
  Six six;
  six.deal({0, 0, 1, 1, 2, 2});
  six.work.add(loss_row(1));
  six.work.open();  // the next epoch, at the same step
  six.deal({0, 0, 0, 1, 1, 1});
  CHECK(six.todo == MicroBatches{0, 2});
  CHECK(six.work.done() == MicroBatches{1});
  CHECK(six.work.rows() == std::vector<LedgerRow>{loss_row(1)});
}

TEST_CASE("step work: shares that deal to others what is done here are seen") {
  Six six;
  CHECK(six.work.dealt_to({}, 0));  // nothing is done yet
  six.deal({0, 0, 1, 1, 2, 2});
  six.work.add(loss_row(1));
  CHECK(six.work.dealt_to({1, 0, 1, 1, 2, 2}, 0));
  CHECK_FALSE(six.work.dealt_to({0, 1, 1, 1, 2, 2}, 0));
  CHECK_FALSE(six.work.dealt_to({0, 0}, 0));
}

TEST_CASE("step work: a ledger takes each row once") {
  Six six;
  CHECK(six.work.arrived({loss_row(2), loss_row(3)}));
  CHECK_FALSE(six.work.arrived({loss_row(3)}));
  CHECK_FALSE(six.work.arrived({loss_row(6)}));  // there is no such micro-batch
  for (const MicroBatch m : std::vector<MicroBatch>{0, 1, 4})
    CHECK(six.work.arrived({loss_row(m)}));
  CHECK_FALSE(six.work.complete());
  CHECK(six.work.arrived({loss_row(5)}));
  CHECK(six.work.complete());
}

TEST_CASE("step work: R7, what is done is gone when the vote has passed, and the ledger stays") {
  Six six;
  six.deal({0, 0, 1, 1, 2, 2});
  six.work.add(loss_row(0));
  six.work.enter(loss_row(0));
  six.work.clear();
  CHECK(six.work.empty());
  CHECK(six.work.rows().size() == 1);
  six.work.open();
  CHECK(six.work.rows().empty());
}

TEST_CASE("step work: the record has the mean loss and all tokens of the step") {
  Six six;
  for (MicroBatch m = 0; m < 6; ++m) six.work.arrived({loss_row(m, m)});
  const StepRecord record = six.work.record(7);
  CHECK(record.version == 7);
  CHECK(record.loss == 2.5);
  CHECK(record.tokens == 60);
  CHECK_FALSE(record.skipped);
}

TEST_CASE("step work: what a model measures has its mean in the record, and a part in the hash") {
  const auto record_of = [](double last) {
    Six six;
    for (MicroBatch m = 0; m < 6; ++m) {
      LedgerRow row = loss_row(m);
      row.metrics = {m == 5 ? last : 1e300, double(m)};
      six.work.arrived({row});
    }
    return six.work.record(7);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(record_of(-5e300).metrics == std::vector<double>{0, 2.5});  // exact, whatever the order
  CHECK(std::isnan(record_of(nan).metrics[0]));
  CHECK(record_of(nan).metrics[1] == 2.5);
  CHECK_FALSE(record_of(nan).skipped);  // a measure is no loss
  CHECK(record_of(1).ledger_hash != record_of(2).ledger_hash);
  CHECK(record_of(nan) == record_of(nan));
  CHECK_FALSE(record_of(1) == record_of(2));
}

TEST_CASE("step work: one micro-batch that is not finite skips the step, and there is no loss") {
  for (const LedgerRow& bad :
       {loss_row(3, 1, /*finite=*/false), loss_row(3, std::numeric_limits<double>::infinity())}) {
    Six six;
    for (const MicroBatch m : std::vector<MicroBatch>{0, 1, 2, 4, 5})
      six.work.arrived({loss_row(m)});
    six.work.arrived({bad});
    CHECK(six.work.record(7).skipped);
    CHECK(std::isnan(six.work.record(7).loss));
    CHECK(six.work.record(7).tokens == 60);
  }
}

}  // namespace
}  // namespace starling::elastic
