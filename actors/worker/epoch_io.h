#pragma once
// One epoch's bytes at one worker: its mesh, the version rule, and the collectives that are under
// way. For engine.cpp; decides nothing.

#include <memory>
#include <optional>
#include <vector>

#include "collectives/gather.h"
#include "collectives/reduce.h"
#include "collectives/tcp/mesh.h"
#include "collectives/tcp/session.h"
#include "elastic/protocol/worker.h"

namespace starling::actors {

struct EpochIo {
  std::shared_ptr<const Plan> plan;
  Rank self = 0;
  bool joiner = false;
  bool closed = false;                          // stopped: nothing is delivered any more
  std::optional<collectives::Session> session;  // none: not entered yet, everything is held
  std::vector<collectives::Arrival> held;
  std::vector<collectives::Arrival> waiting;  // of the current version, for a collective to begin
  elastic::Holders holders;                   // of the step that is open
  // Before the mesh: it must stop before what it sends from goes.
  std::optional<collectives::Reduce> reduce;
  std::vector<SideEntry> side_received;
  bool reduced = false;
  std::optional<collectives::Gather> gather;
  bool gathered = false;
  std::unique_ptr<collectives::Mesh> mesh;

  collectives::Holders plan_holders() const { return {plan, &plan->holders}; }
};

}  // namespace starling::actors
