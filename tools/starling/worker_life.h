#pragma once
// The main thread of a worker process shows progress
// and heeds signals while the worker's actor works.

#include <caf/actor.hpp>

#include "actors/inbox.h"
#include "actors/worker/worker.h"
#include "core/job/job.h"
#include "tools/processes/service_manager.h"
#include "tools/starling/commands.h"

namespace starling::tools {

using WorkerInbox = actors::ThreadInbox<actors::WorkerOver>;

// Asked is what a signal that has arrived asks of this worker.
struct Asked {
  int signal = 0;  // 0: none has arrived
  bool leaves = false;
  bool ends = false;  // now
};

// SIGTERM, SIGUSR1 and SIGUSR2 announce a leave, SIGINT and SIGHUP end the worker. A worker
// of `run` takes all for notice, as all processes of a run may get them, and ends by order.
Asked asked_by_signal(const WorkerCommand& command);

// Waits until the worker is over, or a signal ends it without a WorkerOver. Returns the status. `manager` hears the
// steps, and of a leave that begins.
int wait_for_end(WorkerInbox& inbox, const caf::actor& worker, const WorkerCommand& command,
                 actors::LatestStep& latest, const Job& job, ServiceManager& manager,
                 actors::WorkerOver& over);

}  // namespace starling::tools
