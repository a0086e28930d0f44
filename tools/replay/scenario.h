#pragma once
// A scenario is a stretch of a trace as a plan of joins, leaves and kills of a replay. Pure.

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/chaos/chart.h"
#include "tools/chaos/plan.h"
#include "tools/replay/trace.h"

namespace starling::replay {

struct Stretch {
  std::uint64_t from_ms = 0, to_ms = 0;  // of the trace
  double speedup = 60;
  // Time from the announcement of a removal to it, in the trace's time; none: unannounced.
  std::optional<double> notice_s = 120;

  double seconds() const { return double(to_ms - from_ms) / 1000 / speedup; }  // of the replay
  double at_s(std::uint64_t ms) const { return double(ms - from_ms) / 1000 / speedup; }
};

// Fills nodes, workers and faults; times begin with the replay, at the state of `from_ms`. All
// changes of one instant of the trace are one join, and one kill or leave. A notice begins no
// earlier than the replay and the node's coming. Errors: kBadInput  no node at `from_ms`.
Result<chaos::Plan> plan_of(const Trace& trace, const Stretch& stretch);

// Returns the trace's number of nodes, from 0 to stretch.seconds(): each holds until the next.
std::vector<judge::Point> nodes_over_time(const Trace& trace, const Stretch& stretch);

}  // namespace starling::replay
