#pragma once
// Learning rates that an application brings: `schedule = "name"` in a job file's [optimizer].

#include <cstdint>
#include <functional>

#include "core/base/named.h"
#include "core/job/job.h"

namespace starling {

// Learning rate of step k (0-based) of `steps`. The same double on every worker: of additions and
// products, as the C library's cos() and exp() differ from one machine to the next.
struct Schedule {
  std::function<double(const OptimizerSpec& optimizer, std::uint64_t step, std::uint64_t steps)>
      rate;
};

// Errors: kBadInput  the job names a schedule that nobody has brought.
Result<> check_schedule(const OptimizerSpec& optimizer);

}  // namespace starling
