#pragma once
// Sees that a coordinator's key file has changed: keys were revoked or added while the job runs.

#include <chrono>
#include <optional>
#include <string>

#include "core/base/ids.h"
#include "core/base/keys.h"
#include "core/base/result.h"

namespace starling::tools {

// Threads: belongs to one thread.
class KeyWatch {
 public:
  // `path` is a key file, or a folder of split keys with one of this name. `job` is what its
  // coordinators' keys make (job_id_of).
  KeyWatch(const std::string& path, const std::string& name, const JobId& job);

  // The new allow list, once for each change. Looks at the file at most once a second. Errors:
  // kBadInput  the file has changed and cannot be used; the list that was there holds. One that
  // still changes may be under way: nothing is said of it.
  std::optional<Result<AllowList>> changed();

 private:
  struct Seen {  // of the file: any of these differs after a change
    std::uint64_t device = 0, inode = 0, size = 0;
    std::int64_t seconds = 0, nanoseconds = 0;
    bool operator==(const Seen&) const = default;
  };
  std::optional<Seen> look() const;  // none: it is not there, as while it is being replaced

  const std::string file_;
  const JobId job_;
  std::optional<Seen> seen_;
  bool half_ = false;  // what was seen last cannot be used, and has only just changed
  std::chrono::steady_clock::time_point next_;
};

}  // namespace starling::tools
