#pragma once
// The guard of a worker: the small parent process that notices the worker's death first, tells the
// coordinators, and starts a new life for a worker that was fenced (docs/design.md, section 3).
//
// Why a process: the kernel frees a killed process's memory before it closes its sockets, so end of
// file reaches the others up to seconds late. A robust mutex in memory shared by the two wakes the
// guard within milliseconds. If the guard is killed, the worker goes on, only noticed more slowly.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "actors/gateway/gateway.h"
#include "actors/guard/status.h"
#include "core/base/ids.h"
#include "core/base/keys.h"
#include "core/base/result.h"
#include "core/wire/messages.h"

namespace starling::actors {

struct GuardOptions {
  JobId job{};
  Incarnation worker;  // the life that begins with the fork; its nonce is what a death is told with
  KeyPair key;         // the worker's; the leader believes a death only from this key
  std::vector<GatewayOptions::Server> coordinators;
  // The job is over before the worker has come so far that it hears so itself (SharedLife): says so,
  // and returns the status with which the guard ends. Any thread.
  std::function<int(const Ended&)> too_late;
};

// What a worker says of itself in memory shared with its guard, which passes the last word of it on
// with the worker's death.
struct SharedLife {
  std::atomic<WorkPhase> phase{WorkPhase::kNone};  // what it is at; any thread
  // It listens to the coordinators. Before, while it loads its data or a script, its guard does, and
  // ends it when the job is over.
  std::atomic<bool> listens{false};
  // The coordinators have told it that the job is over: its end, whatever the status, is no death.
  std::atomic<bool> over{false};
  // Why the worker ends itself, ending with a zero byte. Written by the thread that ends the process,
  // as the last thing it does.
  std::array<char, 256> reason{};
  // With which exit code, where that is the end of the worker and not of this life alone; else 0. Set
  // after the reason.
  std::atomic<std::uint8_t> exit_code{0};
};

// Forks; `worker` runs in the child and its result becomes the child's exit status. The guard
// passes ending signals and orders (core/base/signals.h) on to it, and returns how it ended: its exit
// status, or 128 + the signal that killed it. Every end but 0, kFencedStatus, kNotHereStatus and one
// after the job's own has then been told to the coordinators. Both processes run with these signals
// and SIGCHLD blocked: the child is to wait for them. Must be called before the process has threads (ZeroMQ and CAF do not survive a
// fork). Errors: kUnavailable  no memory or process to be had.
Result<int> run_guard(const GuardOptions& options, const std::function<int(SharedLife&)>& worker);

}  // namespace starling::actors
