#pragma once
// The actor that writes manifests and removes old checkpoints for a coordinator, on a thread of its
// own: shared storage may be slow, elections are not.

#include <caf/all.hpp>

#include "actors/messages.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::actors {

// Understands StoreCheckpoint, answers Stored; understands TidyCheckpoints.
caf::actor spawn_checkpoint_keeper(caf::actor_system& system, const Job& job, const Layout& layout);

}  // namespace starling::actors
