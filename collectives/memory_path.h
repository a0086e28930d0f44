#pragma once
// Direct paths within one process: a library in memory, for tests and the simulator. It does
// nothing by itself: whatever happens, happens when its owner runs what it was handed, in whatever order, and
// goes wrong where the owner says so. What two ranks ask of each other and does not match fails.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "collectives/device_path.h"

namespace starling::collectives {

// How a round ends at a member.
enum class PathFault : std::uint8_t {
  kNone,
  kFails,    // with an error; the staging memory is garbage, and the path has failed
  kGarbage,  // as if it were good, and the staging memory is garbage
  kNever,    // not, until its deadline
};

struct MemoryPathCalls {
  // Something is to happen: soon, or no sooner than after so many milliseconds.
  std::function<void(std::uint32_t ms, std::function<void()>)> later;
  // The fate of a round at a rank; `peer_gone`: of one that a member who is gone has to do with, and
  // that else never ends. Not set: nothing goes wrong.
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
