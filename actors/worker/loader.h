#pragma once
// The data-loader actor: makes micro-batches before they are asked for.

#include <caf/all.hpp>

#include "actors/messages.h"
#include "actors/worker/setup.h"

namespace starling::actors {

// Understands LoadAhead, LoadNow (answered with Loaded) and exit messages. Keeps at most
// `ahead_max` micro-batches. Runs detached: making a batch may wait for the disk.
caf::actor spawn_loader(caf::actor_system& system, BatchSource source, std::size_t ahead_max = 64);

}  // namespace starling::actors
