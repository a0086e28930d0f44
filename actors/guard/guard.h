#pragma once
// The guard of a worker is the small parent process that notices the worker's death first, tells
// the coordinators, and starts a new life for a worker that was fenced (docs/design.md, section 3).
//
// The guard is a process, as the kernel frees a killed process's memory before it closes its
// sockets: end of file reaches the others up to seconds late. A robust mutex in shared memory wakes
// the guard in milliseconds. If the guard is killed, the worker goes on, only noticed more slowly.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "actors/gateway/client.h"
#include "actors/guard/status.h"
#include "core/base/ids.h"
#include "core/base/keys.h"
#include "core/base/result.h"
#include "core/wire/messages.h"

namespace starling::actors {

// GatewayClient names the worker's life that begins with the fork: the guard reports a death with the nonce
// of that life and under the worker's key, and the leader believes it under no other.
struct GuardOptions : GatewayClient {
  // Called when the job is over before the worker listens for that itself (SharedLife::listens):
  // reports it, and returns the status with which the guard ends. Any thread.
  std::function<int(const Ended&)> too_late;
  // Called when a coordinator says where coordinators are reached now. May be empty. On one thread,
  // which has ended when run_guard() returns.
  std::function<void(const Seats&)> moved{};
};

// A worker writes SharedLife in memory shared with its guard,
// which passes the last content on with the worker's death.
struct SharedLife {
  std::atomic<WorkPhase> phase{WorkPhase::kNone};  // the worker's present work; any thread
  // True once the worker listens to the coordinators. Before, while it loads
  // its data or a script, its guard listens, and ends it when the job is over.
  std::atomic<bool> listens{false};
  // True once the coordinators have told the worker that the job is over, or have released it as it
  // leaves: then no end is a death.
  std::atomic<bool> over{false};
  // The reason why the worker ends itself, up to a zero byte. Written
  // by the thread that ends the process, as the last thing it does.
  std::array<char, 256> reason{};
  // The exit code, where the worker ends and not
  // this life alone; else 0. Set after the reason.
  std::atomic<std::uint8_t> exit_code{0};
};

// Forks; `worker` runs in the child and its result becomes the child's exit status. The guard
// passes ending signals and orders (core/base/signals.h) on to the child, and returns how it ended:
// its exit status, or 128 + the signal that killed it. It has then told the coordinators every end
// but 0, kFencedStatus, kNotHereStatus and one with `over`. Both processes run with these
// signals and SIGCHLD blocked: the child is to wait for them. Must be called before the process has
// threads (ZeroMQ and CAF do not survive a fork). Errors: kUnavailable  no memory or process.
Result<int> run_guard(const GuardOptions& options, const std::function<int(SharedLife&)>& worker);

}  // namespace starling::actors
