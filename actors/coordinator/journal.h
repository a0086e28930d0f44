#pragma once
// A Journal writes a coordinator's log on a thread of its own: one
// sync of a disk may take seconds, and workers are answered meanwhile.

#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "core/formats/raft_log.h"
#include "elastic/membership/coordinator.h"

namespace starling::actors {

// Threads: belongs to one thread, which must not be the one on which `saved` is called.
class Journal {
 public:
  // The answer to save(): ok, or why the order is not on the disk; then save() must not be
  // called again (RaftLog::save). An error comes unasked if the file was removed or replaced.
  using Saved = std::function<void(Result<>)>;

  Journal(RaftLog log, Saved saved);
  // No answer comes after it. It waits for a write under way, but not for ever: then the write's
  // thread, and the log's lock with it, stay until the disk answers or the process ends.
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Takes one order at a time: the next one after the answer to this one.
  void save(elastic::coordinator_command::Persist order);

 private:
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace starling::actors
