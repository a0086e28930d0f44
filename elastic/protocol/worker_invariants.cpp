// The fields of a worker that may stand beside each other, checked after every event.

#include "core/base/check.h"
#include "elastic/protocol/worker.h"

namespace starling::elastic {

// A worker is one of these:
//   outside   no run_, not stopped: it joins, or waits for a plan
//   running   run_, not stopped; next_ is the prepared plan that may follow it
//   stopped   no run_: it reports, or keeps its copies after its leave
//   last      whatever it was before: it only tells steps that no coordinator has noted
// and it has a state (version_) or none. What r9_keep_sending breaks is not checked with it on.
void Worker::check_invariants() const {
  if (gone_ || config_.bugs.r9_keep_sending) return;
  if (last_) STARLING_CHECK(!unacknowledged_.empty());
  if (run_) STARLING_CHECK(!stopping_.stopped());
  if (run_) STARLING_CHECK(!joining_.outside());
  if (!run_) STARLING_CHECK(joining_.outside() || joining_.over());
  joining_.check_invariants();
  if (next_) STARLING_CHECK(run_.has_value());
  stopping_.check_invariants();
  if (next_) STARLING_CHECK(next_->plan->kind == PlanKind::kPrepared);
  if (next_) STARLING_CHECK(next_->plan->id > run_->plan->id);
  if (finished_) STARLING_CHECK(run_.has_value());
  if (run_) check_run(*run_);
  STARLING_CHECK(copies_.size() == config_.segments);
  work_.check_invariants();
  checkpoint_.check_invariants();
  STARLING_CHECK(joining_.over() == (version_ != kNoVersion));
  // Without a state there is nothing to vote for, to compute or to write.
  if (joining_.over()) return;
  STARLING_CHECK(!pending_);
  STARLING_CHECK(!parameters_complete_);
  STARLING_CHECK(work_.empty());
  STARLING_CHECK(!checkpoint_.writing());
  STARLING_CHECK(!finished_);
}

void Worker::check_run(const EpochRun& run) const {
  using Stage = EpochRun::Stage;
  STARLING_CHECK(run.plan != nullptr);
  STARLING_CHECK(run.self < run.world());
  if (joining_.initialising()) STARLING_CHECK(run.plan->kind == PlanKind::kFresh);
  if (run.stage == Stage::kConnecting) return;
  STARLING_CHECK(!joining_.initialising());
  STARLING_CHECK(run.first != kNoVersion);
  if (!joining_.over()) {  // a joiner of a forced plan: it gathers, or has cast an empty vote
    STARLING_CHECK(run.plan->kind == PlanKind::kForced);
    STARLING_CHECK(run.stage == Stage::kStep || run.stage == Stage::kVoted);
    return;
  }
  // The vote in flight is for this version, or begins the epoch with the record of the one before.
  STARLING_CHECK(run.voting == version_ || run.voting + 1 == version_);
  if (run.stage == Stage::kVoted) STARLING_CHECK(run.votes.count(run.self) == 1);
  if (run.stage == Stage::kFinished) STARLING_CHECK(at_the_end());
  if (pending_) STARLING_CHECK(run.voting == version_);
}

}  // namespace starling::elastic
