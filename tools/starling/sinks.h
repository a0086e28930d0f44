#pragma once
// The sinks of a run beside events.jsonl.

#include <memory>
#include <utility>

#include "core/observe/events.h"
#include "core/observe/loss_curve.h"
#include "core/observe/metrics.h"
#include "core/observe/run_status.h"
#include "core/observe/tensorboard.h"
#include "tools/starling/metrics_pages.h"

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

// Adds metrics, and serves them and what `more` adds at /metrics of `address`, what the run has come to at /status
// (JSON) and /status.txt, and "ok" at /healthz; it is empty: does neither, and returns null. The server must end before
// `events` and what `more` needs. Errors: as PageServer::make().
inline Result<std::unique_ptr<PageServer>> serve_run(EventWriter& events, const Job& job,
                                                     const StatusSink& status,
                                                     const std::string& address,
                                                     const WriteMetrics& more = {}) {
  if (address.empty()) return std::unique_ptr<PageServer>();
  const Metrics& metrics = events.add(std::make_unique<Metrics>(job));
  const auto pages = [&status](const std::string& target,
                               const std::string&) -> std::optional<Page> {
    const double now = unix_time();
    if (target == "/status") return Page{"application/json", status.now().json(now) + "\n"};
    if (target != "/status.txt") return std::nullopt;
    Page page{content_type(MetricsFormat::kPrometheus), ""};
    for (const std::string& line : status.now().lines(now)) page.body += line + "\n";
    return page;
  };
  const auto write = [&metrics, more](Exposition& out) {
    metrics.write(out, unix_time());
    if (more) more(out);
  };
  return serve_metrics(address, write, pages,
                       "metrics are at /metrics, and what the run has come to at /status");
}

}  // namespace starling::tools
