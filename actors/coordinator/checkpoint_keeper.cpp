#include "actors/coordinator/checkpoint_keeper.h"

#include <utility>

#include "core/formats/checkpoint.h"

namespace starling::actors {

caf::actor spawn_checkpoint_keeper(caf::actor_system& system, const Job& job,
                                   const Layout& layout) {
  Manifest form;  // what all manifests of the job have in common
  form.state_hash = state_hash(job);
  form.job = format_job(job);
  form.segments = layout.segments();
  form.segment_blocks = layout.segment_blocks();
  return system.spawn<caf::detached>(
      [form = std::move(form), dir = job.checkpoint.dir](caf::event_based_actor*) -> caf::behavior {
        using namespace elastic::coordinator_command;
        return {
            [form, dir](const StoreCheckpoint& store) {
              Manifest manifest = form;
              manifest.checkpoint = store.checkpoint;
              manifest.record = store.record;
              manifest.shards = store.shards;
              auto stored = publish_checkpoint(dir, manifest);
              return elastic::coordinator_event::Stored{store.checkpoint.version,
                                                        stored ? "" : stored.error().text()};
            },
            [dir](const TidyCheckpoints& tidy) { remove_checkpoints(dir, tidy.below, tidy.kept); },
        };
      });
}

}  // namespace starling::actors
