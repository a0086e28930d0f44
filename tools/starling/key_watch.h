#pragma once
// A KeyWatch sees changes of a coordinator's key file: revoked or added keys while the job runs.

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
  // `path` is a key file, or a folder of split keys with a file of
  // this name. `job` is what the coordinators' keys make (job_id_of).
  KeyWatch(const std::string& path, const std::string& name, const JobId& job);

  // Returns the new allow list, once for each change. Looks at the file at most once
  // a second. Errors: kBadInput  the file has changed and cannot be used; the old
  // list holds. A file that still changes may be half written: no error comes for it.
  std::optional<Result<AllowList>> changed();

 private:
  struct Seen {  // of the file: a change alters at least one of these
    std::uint64_t device = 0, inode = 0, size = 0;
    std::int64_t seconds = 0, nanoseconds = 0;
    bool operator==(const Seen&) const = default;
  };
  std::optional<Seen> look() const;  // none: no file, as while it is being replaced

  const std::string file_;
  const JobId job_;
  std::optional<Seen> seen_;
  bool half_ = false;  // the last look found an unusable file that had just changed
  std::chrono::steady_clock::time_point next_;
};

}  // namespace starling::tools
