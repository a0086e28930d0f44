#pragma once
// Learning rates that an application brings: `schedule = "name"` in a job file's [optimizer].

#include <cstdint>
#include <functional>

#include "core/base/named.h"
#include "core/job/job.h"

namespace starling {

// Gives the learning rate of step k (0-based) of `steps`, the same double on every worker: compute
// it by additions and products, as the C library's cos() and exp() differ between machines.
struct Schedule {
  std::function<double(const OptimizerSpec& optimizer, std::uint64_t step, std::uint64_t steps)>
      rate;
};

// Errors: kBadInput  the job names a schedule that no application has brought.
Result<> check_schedule(const OptimizerSpec& optimizer);

}  // namespace starling
