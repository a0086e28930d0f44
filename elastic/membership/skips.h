#pragma once
// Skips counts steps that were skipped one after the other, because a micro-batch of each was not
// finite: a run that has diverged goes on skipping for ever.
//
// Threads: none; a value.

#include <cstdint>
#include <optional>

#include "core/wire/messages.h"

namespace starling::elastic {

class Skips {
 public:
  // Takes a record; every member sends that of every step. Returns the number of skipped steps in a
  // row when that is to be said: for the first, and then for ten times as many each time.
  std::optional<std::uint64_t> take(const StepRecord& record) {
    if (last_ && record.version <= *last_) return std::nullopt;
    // An unreported step may not have been skipped, so after one the count starts again.
    const bool follows = last_ && record.version == *last_ + 1;
    last_ = record.version;
    if (!record.skipped || !follows) {
      in_a_row_ = 0;
      due_ = 1;
    }
    if (!record.skipped || ++in_a_row_ < due_) return std::nullopt;
    due_ *= 10;
    return in_a_row_;
  }

 private:
  std::optional<Version> last_;  // none: of no step so far
  std::uint64_t in_a_row_ = 0, due_ = 1;
};

}  // namespace starling::elastic
