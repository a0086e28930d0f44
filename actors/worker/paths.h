#pragma once
// Paths says whether this process can have direct paths, and has the library that makes them.

#include <functional>
#include <memory>
#include <string>

#include "collectives/device_path.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/job/job.h"
#include "kernels/device/device.h"

namespace starling::actors {

// A PathRule says which way a step's bytes go.
enum class PathRule : std::uint8_t {
  kAuto = 1,  // from device to device where all members can, else through the hosts
  kHost,
  kDirect,  // as auto, and a worker without a library does not begin
};

struct Paths {
  std::shared_ptr<collectives::PathLibrary> library;  // null: there is none, and `why` says why
  std::string why;
};

// Opens the library on GPUs, and on the emulated device if STARLING_NCCL names a library that knows
// it; call it before other threads read the environment. `on_stuck`: see collectives::NcclOptions.
// Errors: kBadInput  the rule demands a direct path, and none is possible here.
Result<Paths> open_paths(const Job& job, PathRule rule,
                         std::function<void(const std::string& why, Rank self)> on_stuck = {});

}  // namespace starling::actors
