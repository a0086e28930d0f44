#include "tools/starling/metrics_pages.h"

#include <optional>
#include <utility>

#include "core/observe/process_metrics.h"

namespace starling::tools {

Result<std::unique_ptr<PageServer>> serve_metrics(const std::string& address, WriteMetrics write,
                                                  PageServer::Answer other,
                                                  const std::string& not_found) {
  if (address.empty()) return std::unique_ptr<PageServer>();
  const auto answer = [write = std::move(write), other = std::move(other)](
                          const std::string& target,
                          const std::string& accept) -> std::optional<Page> {
    if (target == "/metrics" || target.starts_with("/metrics?")) {
      const bool open = accept.find("application/openmetrics-text") != std::string::npos;
      const auto format = open ? MetricsFormat::kOpenMetrics : MetricsFormat::kPrometheus;
      Exposition out(format);
      write(out);
      write_process(out);
      return Page{content_type(format), std::move(out).text()};
    }
    if (target == "/healthz") return Page{content_type(MetricsFormat::kPrometheus), "ok\n"};
    return other ? other(target, accept) : std::nullopt;
  };
  return PageServer::make({address, "--metrics", not_found}, answer);
}

}  // namespace starling::tools
