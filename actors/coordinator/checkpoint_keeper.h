#pragma once
// The actor that writes manifests and removes old checkpoints for a coordinator, on a thread of its
// own: shared storage may be slow, elections are not.

#include <caf/all.hpp>
#include <vector>

#include "actors/messages.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::actors {

struct CheckpointsGone {  // published ones that are not in the folder any more
  std::vector<Version> versions;
};

// Understands StoreCheckpoint, answers Stored; TidyCheckpoints, answers CheckpointsGone; stop_atom, after
// which it ends, when it has done what came before.
// Writes and removes nothing in a folder that belongs to another job (core/formats/checkpoint_owner.h).
caf::actor spawn_checkpoint_keeper(caf::actor_system& system, const Job& job, const Layout& layout);

}  // namespace starling::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(starling::actors::CheckpointsGone)
