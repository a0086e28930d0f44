#pragma once
// Divergence knows whether a run that came to its end has diverged: its last steps were skipped.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "core/base/ids.h"
#include "core/base/step_record.h"

namespace starling::tools {

// Threads: belongs to one thread.
class Divergence {
 public:
  void begins_at(Version from) { from_ = from; }

  // Takes a step's record. After a coordinator has come back a worker may tell an
  // older step; one that no worker tells counts as its neighbours do.
  void take(const StepRecord& record) {
    first_ = std::min(first_.value_or(record.version), record.version);
    last_ = std::max(last_.value_or(record.version), record.version);
    if (!record.skipped) last_good_ = std::max(last_good_.value_or(record.version), record.version);
  }

  // Says why the run is no success; empty: it is one.
  std::string text() const {
    if (!last_) return "";
    const Version good = last_good_ ? *last_good_ + 1 : *first_;  // the model's version
    const std::uint64_t skipped = *last_ + 1 - good;
    const bool all = !last_good_ && *first_ == from_;
    if (skipped == 0 || (skipped < kDiverged && !all)) return "";
    return "diverged: the last " + std::to_string(skipped) +
           " steps were skipped, each with a micro-batch that is not finite (NaN or infinity); the "
           "model is that of version " +
           std::to_string(good);
  }

 private:
  static constexpr std::uint64_t kDiverged = 10;  // steps in a row

  Version from_ = 0;
  std::optional<Version> first_, last_, last_good_;
};

}  // namespace starling::tools
