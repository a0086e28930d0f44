#pragma once
// A coordinator's log on a thread of its own: a disk may take seconds for one sync, and workers are
// answered meanwhile.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "core/formats/raft_log.h"
#include "elastic/membership/coordinator.h"

namespace starling::actors {

// Threads: belongs to one thread, which must be another than the one that `saved` is called on.
class Journal {
 public:
  // The answer to save(): ok, or why what was asked for is not on the disk. It must not be asked
  // again then (RaftLog::save). An error comes unasked if somebody removed or replaced the file.
  using Saved = std::function<void(Result<>)>;

  Journal(RaftLog log, Saved saved);
  // No answer comes after it. A write under way is waited for, but not for ever: then its thread,
  // and the log's lock with it, stay until the disk answers or the process ends.
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // One at a time: the next after the answer to this one.
  void save(elastic::coordinator_command::Persist order);

 private:
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace starling::actors
