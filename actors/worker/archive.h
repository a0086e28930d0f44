#pragma once
// The archive actor of a worker writes shards of checkpoints and
// loads state from them, on a thread of its own, one after the other.

#include <caf/actor.hpp>

#include "actors/messages.h"
#include "actors/worker/setup.h"

namespace starling::actors {

// The actor answers ShardOrder with ShardDone and LoadOrder with
// LoadDone, whatever happens. `setup->job.checkpoint` says where. It writes nothing there
// once a newer run than this has the store (core/formats/checkpoint_owner.h).
caf::actor spawn_archive(caf::actor_system& system, std::shared_ptr<const TrainingSetup> setup,
                         const JobId& run);

}  // namespace starling::actors
