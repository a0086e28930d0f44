#pragma once
// The sinks of a run beside events.jsonl.

#include <memory>
#include <utility>

#include "core/observe/events.h"
#include "core/observe/loss_curve.h"
#include "core/observe/metrics.h"
#include "tools/starling/metrics_server.h"

namespace starling::tools {

// Adds them, a line each, for `starling run` and for a coordinator of its own. Returns the curve, which
// its command saves when the run is over; `curve`: one that has had the events of an earlier process.
inline const LossCurve& add_sinks(
    EventWriter& events, std::unique_ptr<LossCurve> curve = std::make_unique<LossCurve>()) {
  return events.add(std::move(curve));
}

// Adds metrics, and serves them at `address`; it is empty: does neither, and returns null. The server must end before
// `events`. Errors: as MetricsServer::make().
inline Result<std::unique_ptr<MetricsServer>> serve_metrics(EventWriter& events, const Job& job,
                                                            const std::string& address) {
  if (address.empty()) return std::unique_ptr<MetricsServer>();
  return MetricsServer::make(address, events.add(std::make_unique<Metrics>(job)));
}

}  // namespace starling::tools
