#pragma once
// A direct path over NCCL: one communicator, and one thread that owns it.
//
//   EMPTY -> CREATING -> CREATED -> WARMING -> READY -> IN_USE <-> QUIET    the path's thread
//     any -> DOOMED -> (revoked, from READY on) -> ABORTING -> GONE | the process ends
//
// The next communicator is made beside one that is not DOOMED, or else once that is GONE. CREATED, it
// waits until the one before is GONE, its owner has destroyed the path, and its staging memory is given
// back.
//
// NCCL cannot be believed to end: an abort may block for ever, and so may a launch behind a kernel
// that waits for a dead peer. So nobody but the path's thread ever waits for it, and a second thread
// looks at the clock: what should have ended by itself or been given up `end_ms` ago ends the process.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "collectives/device_path.h"
#include "collectives/nccl/abi.h"
#include "collectives/nccl/turns.h"

namespace starling::collectives::nccl {

// Called on threads of the path's.
struct Calls {
  std::function<void(const std::string& why)> on_stuck;  // must end the process
  // A communicator was made and is gone; may be empty.
  std::function<void(std::chrono::nanoseconds revoke, std::chrono::nanoseconds abort)> on_end;
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

// A path's thread. All that it was given, `nccl` and `turns` too, is used until it is over().
class PathThread {
 public:
  PathThread(const abi::Functions& nccl, Turns& turns, Calls calls, PathOptions options,
             PathEvents events);
  ~PathThread();  // waits until it is over
  PathThread(PathThread&&) = default;
  PathThread& operator=(PathThread&&) = delete;

  std::unique_ptr<DevicePath> path() const;  // one
  bool over() const;                         // nothing of the path is left

 private:
  std::shared_ptr<Attempt> attempt_;
  std::thread thread_;
};

}  // namespace starling::collectives::nccl
