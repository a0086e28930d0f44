#pragma once
// The sinks of a run beside events.jsonl.

#include <memory>
#include <utility>

#include "core/observe/events.h"
#include "core/observe/loss_curve.h"
#include "core/observe/metrics.h"
#include "core/observe/run_status.h"
#include "core/observe/tensorboard.h"
#include "tools/starling/page_server.h"

namespace starling::tools {

// Sinks are of a command; those that have had the events of an earlier process may be given.
struct Sinks {
  std::unique_ptr<LossCurve> curve = std::make_unique<LossCurve>();
  std::unique_ptr<StatusSink> status = std::make_unique<StatusSink>();
};

// SinksThere belong to the EventWriter that they were added to.
struct SinksThere {
  const LossCurve& curve;  // its command saves it when the run is over
  const StatusSink& status;
};

// Adds them, a line each, for `starling run` and for a coordinator of its own.
inline SinksThere add_sinks(EventWriter& events, Sinks sinks = {}) {
  return {events.add(std::move(sinks.curve)), events.add(std::move(sinks.status))};
}

// Adds curves for TensorBoard in a folder; it is empty: does not. Errors: as TensorboardSink::make().
inline Result<> add_tensorboard(EventWriter& events, const Job& job, const std::string& folder,
                                bool begins) {
  if (folder.empty()) return ok();
  STARLING_TRY(sink, TensorboardSink::make(job, folder, begins));
  events.add(std::move(sink));
  return ok();
}

// Adds metrics, and serves them at /metrics of `address`, what the run has come to at /status (JSON) and /status.txt,
// and "ok" at /healthz; it is empty: does neither, and returns null. The server must end before `events`. Errors: as
// PageServer::make().
inline Result<std::unique_ptr<PageServer>> serve_metrics(EventWriter& events, const Job& job,
                                                         const StatusSink& status,
                                                         const std::string& address) {
  if (address.empty()) return std::unique_ptr<PageServer>();
  const Metrics& metrics = events.add(std::make_unique<Metrics>(job));
  const auto answer = [&metrics, &status](const std::string& target,
                                          const std::string& accept) -> std::optional<Page> {
    const double now = unix_time();
    const std::string plain = content_type(MetricsFormat::kPrometheus);
    if (target == "/metrics" || target.starts_with("/metrics?")) {
      const bool open = accept.find("application/openmetrics-text") != std::string::npos;
      const auto format = open ? MetricsFormat::kOpenMetrics : MetricsFormat::kPrometheus;
      return Page{content_type(format), metrics.text(format, now)};
    }
    if (target == "/status") return Page{"application/json", status.now().json(now) + "\n"};
    if (target == "/healthz") return Page{plain, "ok\n"};
    if (target != "/status.txt") return std::nullopt;
    Page page{plain, ""};
    for (const std::string& line : status.now().lines(now)) page.body += line + "\n";
    return page;
  };
  return PageServer::make(
      {address, "--metrics", "metrics are at /metrics, and what the run has come to at /status"},
      answer);
}

}  // namespace starling::tools
