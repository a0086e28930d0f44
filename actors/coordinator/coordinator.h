#pragma once
// The coordinator actor is one member of the Raft group that
// decides epochs, with its log on disk and its gateway.

#include <caf/actor.hpp>
#include <memory>
#include <string>
#include <vector>

#include "actors/gateway/control_counters.h"
#include "actors/messages.h"
#include "core/base/keys.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "core/observe/log.h"

namespace starling::actors {

struct CoordinatorOptions {
  Job job;
  std::shared_ptr<const Layout> layout;
  JobId job_id{};
  std::uint32_t self = 0;  // place in the group
  // All places of coordinators in order, own address unused, without an address where it is not known yet; empty: this
  // is the only one.
  std::vector<GatewayOptions::Server> group;
  std::uint32_t founders = 0;  // the first of them that begin the group; 0: all
  // Takes part in a group that has begun, in a place after the founders'.
  struct Joins {
    std::string host;                       // where others reach this one
    std::optional<std::uint32_t> replaces;  // the place of the one that goes
  };
  std::optional<Joins> joins;
  KeyPair key;
  std::string address = "tcp://127.0.0.1:0";  // to listen on
  AllowList allowed;
  // Of a job with [identity]: a file of certificates that its provider's is checked with; empty: the system's.
  std::string identity_ca;
  std::string state_dir;  // of its log; made if it is not there
  // The group begins, and this member has never run. An empty folder does not prove it: a
  // member whose folder was emptied may have voted or promised, and asks the others first.
  bool first_start = false;
  Version told = 0;                     // CoordinatorConfig's
  std::uint32_t wanted_workers = 1;     // the first epoch waits for them
  std::vector<Checkpoint> checkpoints;  // a new group goes on from the last; oldest first
  LogLevel log = LogLevel::kWarn;
  std::shared_ptr<ControlCounters> control =
      std::make_shared<ControlCounters>();  // kept up to date
};

struct CoordinatorHandle {
  caf::actor actor;
  std::uint16_t port = 0;
  GatewayOptions::Server server;  // how processes of this machine reach it
};

// Opens log and gateway and spawns the actor. It understands
//   follow_atom, caf::actor   that actor gets every Observed from now on, the last LeaderElected
//                             before all others. The job's end comes also if it was over before;
//                             only steps that workers report late follow it. Warnings are logged
//                             only while there is no follower
//   ask_checkpoint_atom       has the members write a checkpoint now, if the job has any
//   EndRun                    ends the run in order: an `ended` event, and workers that were told
//   KeysChanged               revokes the keys that are not in it, and lets in those that are
//   hand_over_atom            has another one lead, if this one does; the answer says whether it does
//   stop_atom                 ends it. After the job's end it goes on answering until then.
// A log that cannot be written (it must not be tried again) or that turns out to be another job's
// ends it: followers get a CoordinatorOver then, with exit code 3 or 2; 0 if it was taken out of the group.
// Errors: kBadInput  the log is another job's, or its identity provider cannot be asked (oidc::Provider::make); and as RaftLog::open and Gateway::start give them.
Result<CoordinatorHandle> spawn_coordinator(caf::actor_system& system, CoordinatorOptions options);

}  // namespace starling::actors
