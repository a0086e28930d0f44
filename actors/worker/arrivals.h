#pragma once
// Which working parameters are there, and of which version: the data plane notes segments as they
// come, and a pass waits for the part that it is to read.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/ids.h"
#include "core/job/layout.h"

namespace starling::actors {

// Borrows `layout`, which must outlive it.
class Arrivals {
 public:
  explicit Arrivals(const Layout& layout);

  // ---- Threads: the data plane's alone ---------------------------------------------------------
  // At this version the segment is not to be written again: passes may read it.
  bool has(SegmentId segment, Version version) const { return versions_[segment] == version; }
  // Its working parameters and exponents are those of this version from now on.
  void note(SegmentId segment, Version version);

  // ---- Threads: any -----------------------------------------------------------------------------
  // Returns when all of the part is there at this version, with how long that took: 0 if it was
  // there. What was written before note() is seen after. Nothing: cancelled before that.
  std::optional<std::chrono::nanoseconds> wait(PartId part, Version version);
  // Ends all waits, those to come too.
  void cancel();

 private:
  const Layout& layout_;
  std::vector<Version> versions_;  // by segment; kNoVersion: never noted
  struct Coming {
    Version version = kNoVersion;
    std::uint32_t lacking = 0;  // segments of the part that are not at it
  };
  std::vector<Coming> coming_;                     // by part
  std::vector<std::atomic<std::uint64_t>> there_;  // by part: the version that all of it has
  std::mutex mutex_;                               // for waiting alone
  std::condition_variable changed_;
  bool cancelled_ = false;  // guarded by mutex_
};

}  // namespace starling::actors
