#include "actors/coordinator/checkpoint_keeper.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "core/formats/checkpoint.h"
#include "core/formats/checkpoint_owner.h"

namespace starling::actors {
namespace {

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

caf::actor spawn_checkpoint_keeper(caf::actor_system& system, const Job& job, const JobId& run,
                                   const Layout& layout) {
  Manifest form;  // what all manifests of the job have in common
  form.state_hash = state_hash(job);
  form.job = format_job(job);
  form.segments = layout.segments();
  form.segment_blocks = layout.segment_blocks();
  const std::shared_ptr<Storage> storage = open_storage(job.checkpoint.dir);
  CheckpointWriter writer{form.state_hash, job.checkpoint.accepts, form.job, run, 0};
  return system.spawn<caf::detached>(
      [form = std::move(form), storage, writer = std::move(writer),
       tended = job.checkpoint.tended](caf::event_based_actor* self) -> caf::behavior {
        using namespace elastic::coordinator_command;
        return {
            [form, storage, writer](std::uint64_t term, const StoreCheckpoint& store) mutable {
              writer.term = term;
              Manifest manifest = form;
              manifest.checkpoint = store.checkpoint;
              manifest.record = store.record;
              manifest.shards = store.shards;
              // The store may have been emptied since the run began, or belong to another job or run.
              auto stored = publish_own_checkpoint(*storage, writer, manifest);
              return elastic::coordinator_event::Stored{store.checkpoint.version,
                                                        stored ? "" : stored.error().text()};
            },
            [storage, writer, tended, told = std::set<Version>()](
                std::uint64_t term, const TidyCheckpoints& order) mutable {
              writer.term = term;
              if (!hold_checkpoints(*storage, writer)) return CheckpointsGone{};
              if (order.above != kNoVersion)
                withdraw_own_checkpoints(*storage, writer, order.above);
              if (order.doubted != kNoVersion)
                doubt_own_checkpoints(*storage, writer, order.doubted);
              remove_own_checkpoints(*storage, writer, order.below, order.kept);
              return tended ? CheckpointsGone{} : gone_of(*storage, order, told);
            },
            [self](stop_atom) { self->quit(); },
        };
      });
}

}  // namespace starling::actors
