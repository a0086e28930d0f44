#pragma once
// The sinks of a run beside events.jsonl.

#include <memory>
#include <utility>

#include "core/observe/events.h"
#include "core/observe/loss_curve.h"

namespace starling::tools {

// Adds them, a line each, for `starling run` and for a coordinator of its own. Returns the curve, which
// its command saves when the run is over; `curve`: one that has had the events of an earlier process.
inline const LossCurve& add_sinks(
    EventWriter& events, std::unique_ptr<LossCurve> curve = std::make_unique<LossCurve>()) {
  return events.add(std::move(curve));
}

}  // namespace starling::tools
