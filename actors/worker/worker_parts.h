#pragma once
// WorkerParts is what a worker hands down to its loop and its data plane.

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "actors/worker/setup.h"
#include "actors/worker/step_clock.h"
#include "actors/worker/transport_support.h"
#include "actors/worker/worker_counters.h"
#include "core/wire/messages.h"

namespace starling::actors {

struct WorkerParts {
  std::shared_ptr<const TrainingSetup> setup;
  TransportSupport transport;  // open_transport(); none: all bytes go through the hosts
  std::chrono::milliseconds connect_timeout{5000};  // until all connections of an epoch stand
  // Kept up to date if set; outlives the worker and its threads.
  std::atomic<WorkPhase>* phase = nullptr;
  // Gets the times of each step if set; complete when the worker is over, which it outlives.
  std::vector<StepTimes>* times = nullptr;
  std::shared_ptr<WorkerCounters> counters = std::make_shared<WorkerCounters>();
};

}  // namespace starling::actors
