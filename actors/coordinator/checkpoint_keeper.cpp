#include "actors/coordinator/checkpoint_keeper.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/formats/checkpoint.h"
#include "core/formats/checkpoint_owner.h"

namespace starling::actors {
namespace {

using Clock = std::chrono::steady_clock;
using elastic::coordinator_command::StoreCheckpoint;
using elastic::coordinator_command::TidyCheckpoints;

// How long a store that was away is not asked to tidy: orders to do so come with each checkpoint that is given
// up, and would keep the end of a run waiting one by one.
constexpr std::chrono::seconds kRest{10};

class Keeper {
 public:
  Keeper(const Job& job, const JobId& run, const Layout& layout)
      : storage_(open_storage(job.checkpoint.dir)), tended_(job.checkpoint.tended) {
    form_.state_hash = state_hash(job);
    form_.job = format_job(job);
    form_.segments = layout.segments();
    form_.segment_blocks = layout.segment_blocks();
    writer_ = {form_.state_hash, job.checkpoint.accepts, form_.job, run, 0};
  }

  elastic::coordinator_event::Stored store(std::uint64_t term, const StoreCheckpoint& order) {
    writer_.term = term;
    Manifest manifest = form_;
    manifest.checkpoint = order.checkpoint;
    manifest.record = order.record;
    manifest.shards = order.shards;
    // The store may have been emptied since the run began, or belong to another job or run.
    const auto stored = publish_own_checkpoint(*storage_, writer_, manifest);
    heed(stored);
    return {order.checkpoint.version, stored ? "" : stored.error().text()};
  }

  CheckpointsGone tidy(std::uint64_t term, const TidyCheckpoints& order) {
    writer_.term = term;
    above_ = std::min(above_, order.above);
    doubted_ = std::min(doubted_, order.doubted);
    if (away_since_ && Clock::now() - *away_since_ < kRest) return {};
    const auto held = hold_checkpoints(*storage_, writer_);
    heed(held);
    if (!held) return {};
    if (above_ != kNoVersion) withdraw_own_checkpoints(*storage_, writer_, above_);
    if (doubted_ != kNoVersion) doubt_own_checkpoints(*storage_, writer_, doubted_);
    above_ = doubted_ = kNoVersion;
    remove_own_checkpoints(*storage_, writer_, order.below, order.kept);
    return tended_ ? CheckpointsGone{} : gone(order);
  }

 private:
  void heed(const Result<>& done) {
    if (!done && done.error().code() == Code::kUnavailable)
      away_since_ = Clock::now();
    else
      away_since_.reset();
  }

  // Returns the published versions that are gone. `told_` keeps one from being named twice.
  CheckpointsGone gone(const TidyCheckpoints& order) {
    CheckpointsGone gone;
    const auto there = list_checkpoints(*storage_);
    if (!there) return gone;  // an unreadable store says nothing of what is there
    for (const Version version : order.kept)
      if (std::find(there.value().begin(), there.value().end(), version) == there.value().end() &&
          told_.insert(version).second)
        gone.versions.push_back(version);
    return gone;
  }

  const std::unique_ptr<Storage> storage_;
  const bool tended_;
  Manifest form_;  // what all manifests of the job have in common
  CheckpointWriter writer_;
  std::set<Version> told_;
  // What is still to be withdrawn and doubted, from the lowest version that an order named.
  Version above_ = kNoVersion, doubted_ = kNoVersion;
  std::optional<Clock::time_point> away_since_;
};

}  // namespace

caf::actor spawn_checkpoint_keeper(caf::actor_system& system, const Job& job, const JobId& run,
                                   const Layout& layout) {
  const auto keeper = std::make_shared<Keeper>(job, run, layout);
  return system.spawn<caf::detached>([keeper](caf::event_based_actor* self) -> caf::behavior {
    return {
        [keeper](std::uint64_t term, const StoreCheckpoint& order) {
          return keeper->store(term, order);
        },
        [keeper](std::uint64_t term, const TidyCheckpoints& order) {
          return keeper->tidy(term, order);
        },
        [self](stop_atom) { self->quit(); },
    };
  });
}

}  // namespace starling::actors
