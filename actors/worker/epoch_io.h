#pragma once
// One epoch at one worker: its frames and the connections on which they go. For engine.cpp; decides
// nothing.

#include <memory>
#include <optional>
#include <vector>

#include "collectives/epoch.h"
#include "collectives/tcp/mesh.h"

namespace starling::actors {

struct EpochIo {
  bool closed = false;  // stopped: nothing is delivered any more
  // Before the mesh: it must stop before what it sends from goes.
  std::optional<collectives::Epoch> frames;
  std::vector<SideEntry> side_received;  // of the step that is reduced
  std::unique_ptr<collectives::Mesh> mesh;
};

}  // namespace starling::actors
