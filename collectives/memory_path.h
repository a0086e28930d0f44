#pragma once
// MemoryPaths makes direct paths within one process: a library for tests and the simulator. It does
// nothing by itself: its owner runs what it was handed, in any order, and says what goes wrong.
// Transfers of two ranks that do not match fail.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "collectives/device_path.h"

namespace starling::collectives {

// PathFault is how a round ends at a member.
enum class PathFault : std::uint8_t {
  kNone,
  kFails,    // with an error; the staging memory is garbage, and the path has failed
  kGarbage,  // as if it were good, and the staging memory is garbage
  kNever,    // not, until its deadline
};

struct MemoryPathCalls {
  // Queues a call that the owner runs: soon, or no sooner than after so many milliseconds.
  std::function<void(std::uint32_t ms, std::function<void()>)> later;
  // Decides how a round ends at a rank. `peer_gone`: a dead rank takes part in the round, which
  // without a fault never ends. Not set: nothing goes wrong.
  std::function<PathFault(Rank, bool peer_gone)> fault;
};

// Threads: one. Paths may outlive it.
class MemoryPaths final : public PathLibrary {
 public:
  explicit MemoryPaths(MemoryPathCalls calls);
  ~MemoryPaths() override;

  const std::string& name() const override { return name_; }
  Result<Bytes> make_id() override;
  std::unique_ptr<DevicePath> connect(PathOptions options, PathEvents events) override;

 private:
  struct Group;
  class Path;
  const std::string name_ = "memory";
  const std::shared_ptr<const MemoryPathCalls> calls_;
  std::uint64_t ids_ = 0;
  std::vector<std::pair<Bytes, std::weak_ptr<Group>>> groups_;
};

}  // namespace starling::collectives
