#pragma once
// Skips makes the warnings of steps that were skipped because a micro-batch of each was not finite:
// a run that has diverged goes on skipping for ever. It belongs to the observer of a whole run:
// a new leader hears of no step before its term, and of some steps that the last leader has told.
//
// Threads: none; a value that belongs to the observer.

#include <optional>

#include "core/base/ids.h"
#include "core/base/tenfold.h"
#include "core/job/job.h"
#include "core/observe/event.h"

namespace starling {

class Skips {
 public:
  // With on_nonfinite = "stop" the end names the step, so there is no warning.
  explicit Skips(const Job& job) : warns_(job.on_nonfinite != NonFinite::kStop) {}

  // Takes the events of a run in their order. Returns a warning for the first skipped step in a row,
  // and then for ten times as many in a row each time.
  std::optional<event::Warning> take(const Event& event);

 private:
  const bool warns_;
  std::optional<Version> last_;  // none: of no step so far
  // Skipped steps since the last that was not; steps that were not told count as neither.
  Tenfold in_a_row_;
};

}  // namespace starling
