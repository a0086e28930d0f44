#pragma once
// check_names() and check_tensors() say early whether this program has what a job file names.

#include <string>

#include "core/base/result.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::tools {

// Looks for the application's model, optimizer and schedule, and
// the script. Errors: kBadInput what is not here, what is, and the file.
Result<> check_names(const Job& job, const std::string& file);

// Looks for the tensors that the optimizer's groups name. Errors: as above.
Result<> check_tensors(const Job& job, const Layout& layout, const std::string& file);

// Returns a warning of an optimizer that is unusual beside local steps; empty: it is none.
std::string local_remark(const Job& job);

}  // namespace starling::tools
