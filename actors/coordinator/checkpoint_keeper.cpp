#include "actors/coordinator/checkpoint_keeper.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "core/formats/checkpoint.h"
#include "core/formats/checkpoint_owner.h"

namespace starling::actors {
namespace {

// The store may have been emptied since the run began and belong to another job by now.
Result<> publish(Storage& storage, std::uint64_t accepts, const Manifest& manifest) {
  STARLING_TRY(claim_checkpoints(storage, manifest.state_hash, accepts, manifest.job));
  return publish_checkpoint(storage, manifest);
}

// Returns the published versions that are gone. `told` keeps one from being named twice.
CheckpointsGone gone_of(const Storage& storage,
                        const elastic::coordinator_command::TidyCheckpoints& order,
                        std::set<Version>& told) {
  CheckpointsGone gone;
  const auto there = list_checkpoints(storage);
  if (!there) return gone;  // an unreadable store says nothing of what is there
  for (const Version version : order.kept)
    if (std::find(there.value().begin(), there.value().end(), version) == there.value().end() &&
        told.insert(version).second)
      gone.versions.push_back(version);
  return gone;
}

}  // namespace

caf::actor spawn_checkpoint_keeper(caf::actor_system& system, const Job& job,
                                   const Layout& layout) {
  Manifest form;  // what all manifests of the job have in common
  form.state_hash = state_hash(job);
  form.job = format_job(job);
  form.segments = layout.segments();
  form.segment_blocks = layout.segment_blocks();
  const std::shared_ptr<Storage> storage = open_storage(job.checkpoint.dir);
  return system.spawn<caf::detached>(
      [form = std::move(form), storage,
       accepts = job.checkpoint.accepts](caf::event_based_actor* self) -> caf::behavior {
        using namespace elastic::coordinator_command;
        return {
            [form, storage, accepts](const StoreCheckpoint& store) {
              Manifest manifest = form;
              manifest.checkpoint = store.checkpoint;
              manifest.record = store.record;
              manifest.shards = store.shards;
              auto stored = publish(*storage, accepts, manifest);
              return elastic::coordinator_event::Stored{store.checkpoint.version,
                                                        stored ? "" : stored.error().text()};
            },
            [form, storage, told = std::set<Version>()](const TidyCheckpoints& order) mutable {
              if (order.above != kNoVersion)
                withdraw_own_checkpoints(*storage, form.state_hash, order.above);
              if (order.doubted != kNoVersion)
                doubt_own_checkpoints(*storage, form.state_hash, order.doubted);
              remove_own_checkpoints(*storage, form.state_hash, order.below, order.kept);
              return gone_of(*storage, order, told);
            },
            [self](stop_atom) { self->quit(); },
        };
      });
}

}  // namespace starling::actors
