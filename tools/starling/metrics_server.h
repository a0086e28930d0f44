#pragma once
// A MetricsServer answers GET /metrics with the metrics of a run, /status with what it has come to as JSON, /status.txt
// with the same for people, and /healthz with "ok", over plain HTTP.

#include <memory>
#include <string>

#include "core/base/result.h"
#include "core/observe/metrics.h"
#include "core/observe/run_status.h"

namespace starling::tools {

// Threads: one of its own; make() and the destructor belong to the thread that has the metrics.
class MetricsServer {
 public:
  // `address`: PORT (of 127.0.0.1) or HOST:PORT; port 0: any. `metrics` and `status` must outlive it. Errors:
  // kBadInput  it is no address, or cannot be listened at.
  static Result<std::unique_ptr<MetricsServer>> make(const std::string& address,
                                                     const Metrics& metrics,
                                                     const StatusSink& status);
  ~MetricsServer();

  // "http://127.0.0.1:9464/metrics".
  const std::string& url() const { return url_; }

 private:
  struct Impl;
  MetricsServer(std::unique_ptr<Impl> impl, std::string url);
  const std::unique_ptr<Impl> impl_;
  const std::string url_;
};

}  // namespace starling::tools
