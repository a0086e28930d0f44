#pragma once
// A direct path over NCCL: one communicator, and one thread that owns it.
//
//   EMPTY -> CREATING -> CREATED -> WARMING -> READY -> IN_USE <-> QUIET    the path's thread
//     any -> DOOMED -> (REVOKED -> the gate, from READY on) -> ABORTING -> GONE
//     any -> STUCK                                                        the watching thread
//
// The next communicator is made beside one that is not DOOMED, or else once that is GONE. CREATED, it
// waits until the one before is GONE, its owner has destroyed the path, and its staging memory is given
// back.
//
// REVOKED, no kernel of NCCL's runs here; ABORTING gives memory back that kernels of other GPUs of the
// machine may work on, and so waits for its gate (collectives/path_ends.h).
//
// NCCL may never end: a revoke or an abort may block for ever, and so may a launch behind a kernel
// that waits for a dead peer. So only the path's thread ever waits for NCCL, and a second thread
// looks at the clock. What should have ended by itself or been given up `end_ms` ago is STUCK: its
// thread, memory and ticket stay until the process ends, and no path is made any more.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "collectives/device_path.h"
#include "collectives/nccl/abi.h"
#include "collectives/nccl/turns.h"

namespace starling::collectives::nccl {

// Called on threads of the path's; either may be empty (NcclOptions).
struct Calls {
  std::function<void(const std::string& why, Rank self)> on_stuck;
  std::function<void(std::chrono::nanoseconds revoke, std::chrono::nanoseconds abort)> on_end;
};

// Shared is what the paths of one library share. A path that is stuck keeps it.
struct Shared {
  const abi::Functions functions{};
  const Calls calls;
  Turns turns;
};

class Attempt;

class Path : public DevicePath {
 public:
  explicit Path(std::shared_ptr<Attempt> attempt) : attempt_(std::move(attempt)) {}
  ~Path() override;
  std::byte* staging() override;
  void exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) override;
  void doom() override;

 private:
  const std::shared_ptr<Attempt> attempt_;
};

// A path's thread.
class PathThread {
 public:
  PathThread(std::shared_ptr<Shared> shared, PathOptions options, PathEvents events);
  ~PathThread();  // waits until it is over or stuck
  PathThread(PathThread&&) = default;
  PathThread& operator=(PathThread&&) = delete;

  std::unique_ptr<DevicePath> path() const;  // one
  bool over() const;                         // nothing of the path is left

 private:
  std::shared_ptr<Attempt> attempt_;
  std::thread thread_;
};

}  // namespace starling::collectives::nccl
