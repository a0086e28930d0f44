#pragma once
// This actor writes manifests and removes old checkpoints for a coordinator, on a
// thread of its own: storage may be slow, elections may not wait for it.

#include <caf/actor.hpp>

#include "actors/coordinator/keeper.h"
#include "actors/messages.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::actors {

// The actor answers StoreCheckpoint with Stored and TidyCheckpoints with
// CheckpointsGone, each sent behind the term in which its sender led; stop_atom ends it
// after it has done what was sent before. It writes and removes nothing in the store of another
// job, a newer run or a newer leader (core/formats/checkpoint_owner.h).
caf::actor spawn_checkpoint_keeper(caf::actor_system& system, const Job& job, const JobId& run,
                                   const Layout& layout);

}  // namespace starling::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::CheckpointsGone)
