#include "core/observe/skips.h"

#include <string>

namespace starling {

std::optional<event::Warning> Skips::take(const Event& event) {
  const auto* step = std::get_if<event::StepPassed>(&event);
  if (!warns_ || !step) return std::nullopt;
  const StepRecord& record = step->record;
  if (last_ && record.version <= *last_) return std::nullopt;  // every member tells every step
  last_ = record.version;
  if (!record.skipped) {
    in_a_row_ = {};
    return std::nullopt;
  }
  if (!in_a_row_.count()) return std::nullopt;
  const std::string what = "step " + std::to_string(record.version) +
                           " is skipped: a micro-batch of it is not finite (NaN or infinity)";
  if (in_a_row_.counted() == 1) return event::Warning{what + "; its update is left out"};
  return event::Warning{what + ", as the " + std::to_string(in_a_row_.counted() - 1) +
                        " before it; the training has diverged"};
}

}  // namespace starling
