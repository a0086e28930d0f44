#pragma once
// One epoch at one worker: its frames and the connections on which they go. For store.cpp; decides
// nothing.

#include <memory>
#include <optional>

#include "collectives/epoch.h"
#include "collectives/tcp/mesh.h"

namespace starling::actors {

struct EpochIo {
  bool given_up = false;  // Broken was told: nothing is delivered any more
  // Before the mesh: it must stop before what it sends from goes.
  std::optional<collectives::Epoch> frames;
  std::unique_ptr<collectives::Mesh> mesh;
};

}  // namespace starling::actors
