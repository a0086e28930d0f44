#pragma once
// MemoryTransports makes device transports within one process: a library for tests and the
// simulator. It does nothing by itself: its owner runs what it was handed, in any order, and says
// what goes wrong. Transfers of two ranks that do not match fail.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "collectives/device_transport.h"

namespace starling::collectives {

// TransportFault is how a round ends at a member.
enum class TransportFault : std::uint8_t {
  kNone,
  kFails,    // with an error; the staging memory is garbage, and the transport has failed
  kGarbage,  // as if it were good, and the staging memory is garbage
  kNever,    // not, until its deadline
};

struct MemoryTransportCalls {
  // Queues a call that the owner runs: soon, or no sooner than after so many milliseconds.
  std::function<void(std::uint32_t ms, std::function<void()>)> later;
  // Decides how a round ends at a rank. `peer_gone`: a dead rank takes part in the round, which
  // without a fault never ends. Not set: nothing goes wrong.
  std::function<TransportFault(Rank, bool peer_gone)> fault;
};

// Threads: one. Transports may outlive it.
class MemoryTransports final : public TransportLibrary {
 public:
  explicit MemoryTransports(MemoryTransportCalls calls);
  ~MemoryTransports() override;

  const std::string& name() const override { return name_; }
  Result<Bytes> make_id() override;
  std::unique_ptr<DeviceTransport> connect(TransportOptions options,
                                           TransportEvents events) override;

 private:
  struct Group;
  class Path;
  const std::string name_ = "memory";
  const std::shared_ptr<const MemoryTransportCalls> calls_;
  std::uint64_t ids_ = 0;
  std::vector<std::pair<Bytes, std::weak_ptr<Group>>> groups_;
};

}  // namespace starling::collectives
