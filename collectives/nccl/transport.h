#pragma once
// A device transport over NCCL: one communicator, and one thread that owns it.
// transport_state.h draws its states.
//
// The next communicator is made beside one that has neither failed nor been given up, or else once
// that one is OVER. CREATED, it waits until the one before is OVER.
//
// NCCL may never end: a revoke or an abort may block for ever, and so may a launch behind a kernel
// that waits for a dead peer. So only the transport's thread ever waits for NCCL, and a second thread
// looks at the clock. What should have ended by itself or been given up `end_ms` ago is STUCK: its
// thread, memory and ticket stay until the process ends, and no transport is made any more.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "collectives/device_transport.h"
#include "collectives/nccl/abi.h"
#include "collectives/nccl/turns.h"

namespace starling::collectives::nccl {

// Called on threads of the transport's; either may be empty (NcclOptions).
struct Calls {
  std::function<void(const std::string& why, Rank self)> on_stuck;
  std::function<void(std::chrono::nanoseconds revoke, std::chrono::nanoseconds abort)> on_end;
};

// Shared is what the transports of one library share. A transport that is stuck keeps it.
struct Shared {
  const abi::Functions functions{};
  const Calls calls;
  Turns turns;
};

class Attempt;

class Path : public DeviceTransport {
 public:
  explicit Path(std::shared_ptr<Attempt> attempt) : attempt_(std::move(attempt)) {}
  ~Path() override;
  std::byte* staging() override;
  void exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) override;
  void doom() override;

 private:
  const std::shared_ptr<Attempt> attempt_;
};

// A transport's thread.
class TransportThread {
 public:
  TransportThread(std::shared_ptr<Shared> shared, TransportOptions options, TransportEvents events);
  ~TransportThread();  // waits until it is over or stuck
  TransportThread(TransportThread&&) = default;
  TransportThread& operator=(TransportThread&&) = delete;

  std::unique_ptr<DeviceTransport> transport() const;  // one
  bool over() const;                                   // nothing of the transport is left

 private:
  std::shared_ptr<Attempt> attempt_;
  std::thread thread_;
};

}  // namespace starling::collectives::nccl
