#pragma once
// The worker actor: one worker of a job, with its trainer and gateway. The entry point for
// applications that embed Starling (examples/embed).

#include <atomic>
#include <caf/all.hpp>
#include <mutex>
#include <optional>
#include <vector>

#include "actors/messages.h"
#include "actors/worker/paths.h"
#include "actors/worker/setup.h"
#include "actors/worker/step_clock.h"
#include "core/observe/log.h"
#include "core/observe/progress.h"

namespace starling::actors {

// The last step that a worker has told of, for whoever shows it to a person; steps that nobody has
// taken are replaced. Threads: any.
class LatestStep {
 public:
  void put(const ProgressStep& step) {
    const std::lock_guard lock(mutex_);
    if (!step_ || step_->version < step.version) step_ = step;
  }
  std::optional<ProgressStep> take() {
    const std::lock_guard lock(mutex_);
    if (!step_ || step_->version == taken_) return std::nullopt;
    taken_ = step_->version;
    return step_;
  }

 private:
  std::mutex mutex_;
  std::optional<ProgressStep> step_;  // guarded by mutex_
  Version taken_ = kNoVersion;        // guarded by mutex_
};

struct WorkerOptions {
  std::shared_ptr<const TrainingSetup> setup;
  Paths paths;  // open_paths(); none: all bytes go through the hosts
  JobId job_id{};
  Incarnation self;  // nonce != 0, of this life
  KeyPair key;       // one of the job's ring, with its secret
  std::vector<GatewayOptions::Server> coordinators;
  std::string host = "127.0.0.1";  // where it listens for other workers
  std::uint16_t port = 0;          // 0: any free one
  // Where they reach it, if that is not where it listens (a port is forwarded).
  std::string advertised_host;        // empty: host
  std::uint16_t advertised_port = 0;  // 0: the one that it listens at
  std::string failure_domain;
  std::uint32_t threads = 1;                // compute threads
  double slowness = 1;                      // by how much a micro-batch takes longer
  std::uint64_t pid = 0;                    // shown in events
  std::atomic<WorkPhase>* phase = nullptr;  // kept up to date if set; outlives the actor
  // Where the time of each step went goes here if set; complete when WorkerOver is there.
  std::vector<StepTimes>* times = nullptr;
  LatestStep* latest = nullptr;  // told of every step if set; outlives the actor
  LogLevel log = LogLevel::kWarn;
};

// Opens the bulk listener and the gateway, spawns worker and trainer. The worker joins, trains, and
// ends by itself; `follower` gets WorkerOver then, whatever ended it but an exit message. The
// worker understands
//   Notice                    announced leave, or a hint
//   exit messages             ends at once
// Errors: kBadInput  an address or key cannot be used.
Result<caf::actor> spawn_worker(caf::actor_system& system, WorkerOptions options, caf::actor loader,
                                caf::actor follower);

}  // namespace starling::actors
