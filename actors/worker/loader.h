#pragma once
// The data-loader actor makes micro-batches before they are asked for.

#include <caf/actor.hpp>

#include "actors/messages.h"
#include "actors/worker/setup.h"

namespace starling::actors {

// The actor understands LoadAhead, LoadNow (answered with Loaded) and exit messages. It keeps
// at most `ahead_max` micro-batches, and runs detached: making a batch may wait for the disk.
caf::actor spawn_loader(caf::actor_system& system, BatchSource source, std::size_t ahead_max = 64);

}  // namespace starling::actors
