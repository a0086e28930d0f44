#pragma once
// Arrivals says which working parameters are there, and of which version: the data
// plane notes segments as they come, and a pass waits for the part that it is to read.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/ids.h"
#include "core/base/mutex.h"
#include "core/job/layout.h"

namespace starling::actors {

// Arrivals borrows `layout`, which must outlive it.
class Arrivals {
 public:
  explicit Arrivals(const Layout& layout);

  // ---- Threads: the data plane's alone ---------------------------------------------------------
  // True: the segment is not written again at this version, and passes may read it.
  bool has(SegmentId segment, Version version) const { return versions_[segment] == version; }
  // The segment's working parameters and exponents are those of this version from now on.
  void note(SegmentId segment, Version version);

  // ---- Threads: any -----------------------------------------------------------------------------
  // Returns when all of the part is there at this version, with how long that took: 0 if it
  // was there. Memory written before note() is seen after. Nothing: cancelled before that.
  std::optional<std::chrono::nanoseconds> wait(PartId part, Version version);
  // Ends all waits, present and future ones.
  void cancel();
  bool cancelled() const { return cancelled_; }

 private:
  const Layout& layout_;
  std::vector<Version> versions_;  // by segment; kNoVersion: never noted
  struct Coming {
    Version version = kNoVersion;
    std::uint32_t lacking = 0;  // segments of the part that are not at it
  };
  std::vector<Coming> coming_;                     // by part
  std::vector<std::atomic<std::uint64_t>> there_;  // by part: the version that all of it has
  Mutex mutex_;                                    // for waiting alone
  CondVar changed_;
  std::atomic<bool> cancelled_ = false;  // written under mutex_
};

}  // namespace starling::actors
