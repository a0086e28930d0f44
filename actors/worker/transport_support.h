#pragma once
// TransportSupport says whether this process can have device transports, and has the library that
// makes them.

#include <functional>
#include <memory>
#include <string>

#include "actors/worker/transport_choice.h"
#include "collectives/device_transport.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/job/job.h"

namespace starling::actors {

struct TransportSupport {
  std::shared_ptr<collectives::TransportLibrary>
      library;  // null: there is none, and `why` says why
  std::string why;
};

// Opens the library on GPUs, and on the emulated device if STARLING_NCCL names a library that knows
// it; call it before other threads read the environment. `on_stuck`: see collectives::NcclOptions.
// Errors: kBadInput  the rule demands a device transport, and none is possible here.
Result<TransportSupport> open_transport(
    const Job& job, TransportChoice rule,
    std::function<void(const std::string& why, Rank self)> on_stuck = {});

}  // namespace starling::actors
