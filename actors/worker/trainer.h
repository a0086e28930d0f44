#pragma once
// The trainer actor deals the micro-batches of a share to compute actors, each of which
// owns a thread, a workspace and a gradient, and adds what it computed to the accumulators.

#include <caf/actor.hpp>

#include "actors/messages.h"
#include "actors/worker/setup.h"
#include "actors/worker/workbench.h"
#include "actors/worker/worker_counters.h"

namespace starling::actors {

struct TrainerOptions {
  std::shared_ptr<const TrainingSetup> setup;
  std::uint32_t threads = 1;
  caf::actor loader;
  std::shared_ptr<Workbench> workbench;
  double slowness = 1;  // see actors/worker/pace.h
  std::shared_ptr<WorkerCounters> counters = std::make_shared<WorkerCounters>();
};

// The actor understands ComputeOrder, and rest_atom: idle threads give back what a pass needs,
// until the next one. It sends MicroBatchComputed to `worker`. A micro-batch in progress is always
// finished and counts (R8), in its full time unless the trainer is told to exit.
caf::actor spawn_trainer(caf::actor_system& system, TrainerOptions options, caf::actor worker);

}  // namespace starling::actors
