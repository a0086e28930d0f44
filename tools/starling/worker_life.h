#pragma once
// What the main thread of a worker process does while its actor works: it shows progress and heeds
// signals.

#include <caf/all.hpp>

#include "actors/inbox.h"
#include "actors/worker/worker.h"
#include "core/job/job.h"
#include "tools/starling/commands.h"

namespace starling::tools {

using WorkerInbox = actors::ThreadInbox<actors::WorkerOver>;

// What a signal that has arrived asks of this worker.
struct Asked {
  int signal = 0;  // 0: none has arrived
  bool leaves = false;
  bool ends = false;  // now
};

// SIGTERM, SIGUSR1 and SIGUSR2 announce its leave, SIGINT and SIGHUP end it. A worker of `run` takes
// all of them for notice, as a signal may have gone to every process of the run, and ends by order.
Asked asked_by_signal(const WorkerCommand& command);

// Until the worker is over, or a signal ends it: then there is no WorkerOver. Returns the exit status.
int wait_for_end(WorkerInbox& inbox, const caf::actor& worker, const WorkerCommand& command,
                 actors::LatestStep& latest, const Job& job, actors::WorkerOver& over);

}  // namespace starling::tools
