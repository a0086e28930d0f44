#pragma once
// Fronts put the proxy in the way of workers: each worker gets addresses
// with which all of its connections go through ports of the proxy.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/chaos/proxy.h"

namespace starling::chaos {

// Returns options of `starling worker` for a worker of this name that joins the coordinators
// at these addresses ("127.0.0.1:7000", at the proxy's host): it listens at a port of its own,
// advertises a front of it, and reaches each coordinator through a front. `home`: the worker's
// own address, where it listens; empty: it shares the proxy's, 127.0.0.1. Fronts of an earlier
// worker of that name go. Errors: kUnavailable  no port; kBadInput  an address without one.
Result<std::vector<std::string>> addresses_behind(Proxy& proxy, const std::string& worker,
                                                  const std::vector<std::string>& coordinators,
                                                  const std::string& home = "");

}  // namespace starling::chaos
