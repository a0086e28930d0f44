#pragma once
// One epoch at one worker: its frames and the connections on which they go. For store.cpp; decides
// nothing.

#include <memory>
#include <optional>
#include <vector>

#include "collectives/epoch.h"
#include "collectives/tcp/mesh.h"
#include "core/wire/messages.h"

namespace starling::actors {

struct EpochIo {
  bool given_up = false;  // Broken was told: nothing is delivered any more
  // While a step is reduced: by bucket, whether its own sums were sent.
  std::optional<std::vector<bool>> sent;
  // Before the mesh: it must stop before what it sends from goes.
  std::optional<collectives::Epoch> frames;
  std::unique_ptr<collectives::Mesh> mesh;
};

// Whom this rank of the plan has connections with.
inline collectives::MeshOptions mesh_of(const Plan& plan, Rank self) {
  collectives::MeshOptions mesh;
  mesh.epoch = plan.id;
  mesh.key = plan.key;
  mesh.self = self;
  for (const Member& m : plan.members) mesh.peers.push_back({m.who, m.host, m.port});
  return mesh;
}

}  // namespace starling::actors
