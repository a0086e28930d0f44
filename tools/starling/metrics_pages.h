#pragma once
// The pages of a process that serves metrics.

#include <functional>
#include <memory>
#include <string>

#include "core/observe/exposition.h"
#include "tools/starling/page_server.h"

namespace starling::tools {

// Adds families of metrics; runs on the server's thread.
using WriteMetrics = std::function<void(Exposition& out)>;

// Serves what `write` adds, and the process' own metrics, at /metrics of `address`, and "ok" at /healthz; the rest is
// `other`'s, if there is one. Returns null where the address is empty. `not_found`: PageServer::Place's.
// Errors: as PageServer::make().
Result<std::unique_ptr<PageServer>> serve_metrics(const std::string& address, WriteMetrics write,
                                                  PageServer::Answer other,
                                                  const std::string& not_found);

}  // namespace starling::tools
