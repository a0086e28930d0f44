#pragma once
// Whether this program has what a job file names: it is said before anything is made or started.

#include "core/base/result.h"
#include "core/job/job.h"

namespace starling::tools {

// The application's model, optimizer and schedule, and the script. Errors: kBadInput  names what is not
// here, and what is.
Result<> check_names(const Job& job);

}  // namespace starling::tools
