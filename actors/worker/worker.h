#pragma once
// The worker actor is one worker of a job, with its trainer and gateway. It
// is the entry point for applications that embed Starling (examples/embed).

#include <caf/actor.hpp>
#include <optional>
#include <vector>

#include "actors/gateway/client.h"
#include "actors/messages.h"
#include "actors/worker/worker_parts.h"
#include "core/base/mutex.h"
#include "core/observe/log.h"
#include "core/observe/progress.h"

namespace starling::actors {

// LatestStep holds the last step that a worker has told of, for a thread that shows
// it to a person; a newer step replaces one that was not taken. Threads: any.
class LatestStep {
 public:
  void put(const ProgressStep& step) {
    const MutexLock lock(mutex_);
    if (!step_ || step_->version < step.version) step_ = step;
  }
  std::optional<ProgressStep> take() {
    const MutexLock lock(mutex_);
    if (!step_ || step_->version == taken_) return std::nullopt;
    taken_ = step_->version;
    return step_;
  }
  // Whether the worker has told of a step.
  bool any() const {
    const MutexLock lock(mutex_);
    return step_.has_value();
  }

 private:
  mutable Mutex mutex_;
  std::optional<ProgressStep> step_ STARLING_GUARDED_BY(mutex_);
  Version taken_ STARLING_GUARDED_BY(mutex_) = kNoVersion;
};

struct WorkerOptions : WorkerParts, GatewayClient {
  std::string host = "127.0.0.1";  // where this worker listens for other workers
  std::uint16_t port = 0;          // 0: any free one
  // The address at which other workers reach this one, if not host:port (a port is forwarded).
  std::string advertised_host;        // empty: host
  std::uint16_t advertised_port = 0;  // 0: the one that it listens at
  std::string failure_domain;
  std::string folder = ".";  // the worker says how much room there is (Machine)
  WorkerRole role = WorkerRole::kBoth;
  std::uint32_t threads = 1;     // compute threads
  double slowness = 1;           // by how much a micro-batch takes longer
  Digest data{};                 // read_data(); zeros: to be read beside computing
  std::uint64_t pid = 0;         // shown in events
  LatestStep* latest = nullptr;  // gets every step if set; outlives the actor
  LogLevel log = LogLevel::kWarn;
};

// Opens the bulk listener and the gateway, spawns worker and trainer. The
// worker joins, trains, and ends by itself; `follower` gets WorkerOver
// then, whatever ended it but an exit message. The worker understands
//   Notice                    announced leave, or a hint
//   exit messages             ends at once
// Errors: kBadInput  an address or key cannot be used.
Result<caf::actor> spawn_worker(caf::actor_system& system, WorkerOptions options, caf::actor loader,
                                caf::actor follower);

}  // namespace starling::actors
