#pragma once
// check_names() says early whether this program has what a job file names.

#include "core/base/result.h"
#include "core/job/job.h"

namespace starling::tools {

// Looks for the application's model, optimizer and schedule, and
// the script. Errors: kBadInput what is not here, and what is.
Result<> check_names(const Job& job);

}  // namespace starling::tools
