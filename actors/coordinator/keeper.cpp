#include "actors/coordinator/keeper.h"

#include <algorithm>
#include <utility>

namespace starling::actors {
namespace {

using elastic::coordinator_command::StoreCheckpoint;
using elastic::coordinator_command::TidyCheckpoints;

// How long a store that was away is not asked to tidy: orders to do so come with each checkpoint that is given
// up, and would keep the end of a run waiting one by one.
constexpr std::chrono::seconds kRest{10};

}  // namespace

Keeper::Keeper(const Job& job, const JobId& run, const Layout& layout,
               std::unique_ptr<Storage> storage)
    : storage_(std::move(storage)), tended_(job.checkpoint.tended) {
  form_.state_hash = state_hash(job);
  form_.job = format_job(job);
  form_.segments = layout.segments();
  form_.segment_blocks = layout.segment_blocks();
  writer_ = {form_.state_hash, job.checkpoint.accepts, form_.job, run, 0};
}

elastic::coordinator_event::Stored Keeper::store(std::uint64_t term, const StoreCheckpoint& order) {
  lead(term);
  Manifest manifest = form_;
  manifest.checkpoint = order.checkpoint;
  manifest.record = order.record;
  manifest.shards = order.shards;
  // What is to be withdrawn or doubted was there before this one, and is not to be taken for it later.
  auto stored = catch_up();
  // The store may have been emptied since the run began, or belong to another job or run.
  if (stored) stored = publish_own_checkpoint(*storage_, writer_, manifest);
  heed(stored);
  return {order.checkpoint.version, stored ? "" : stored.error().text()};
}

CheckpointsGone Keeper::tidy(std::uint64_t term, const TidyCheckpoints& order) {
  lead(term);
  above_ = std::min(above_, order.above);
  doubted_ = std::min(doubted_, order.doubted);
  const bool owes = above_ != kNoVersion || doubted_ != kNoVersion;
  if (!owes && away_since_ && Clock::now() - *away_since_ < kRest) return {};
  auto done = hold_checkpoints(*storage_, writer_);
  if (done) done = catch_up();
  heed(done);
  if (!done) return {};
  remove_own_checkpoints(*storage_, writer_, order.below, order.kept);
  return tended_ ? CheckpointsGone{} : gone(order);
}

// What an earlier term owes is the next leader's to order: meanwhile others may have published.
void Keeper::lead(std::uint64_t term) {
  if (term != writer_.term) above_ = doubted_ = kNoVersion;
  writer_.term = term;
}

// Withdraws and doubts what is owed. Errors: some of it is owed still.
Result<> Keeper::catch_up() {
  if (above_ != kNoVersion) {
    STARLING_TRY(withdraw_own_checkpoints(*storage_, writer_, above_));
    above_ = kNoVersion;
  }
  if (doubted_ != kNoVersion) {
    STARLING_TRY(doubt_own_checkpoints(*storage_, writer_, doubted_));
    doubted_ = kNoVersion;
  }
  return ok();
}

void Keeper::heed(const Result<>& done) {
  if (!done && done.error().code() == Code::kUnavailable)
    away_since_ = Clock::now();
  else
    away_since_.reset();
}

// Returns the published versions that are gone. `told_` keeps one from being named twice.
CheckpointsGone Keeper::gone(const TidyCheckpoints& order) {
  CheckpointsGone gone;
  const auto there = list_checkpoints(*storage_);
  if (!there) return gone;  // an unreadable store says nothing of what is there
  for (const Version version : order.kept)
    if (std::find(there.value().begin(), there.value().end(), version) == there.value().end() &&
        told_.insert(version).second)
      gone.versions.push_back(version);
  return gone;
}

}  // namespace starling::actors
