#pragma once
// The job of a group, as a worker of this machine has it.

#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/job/job.h"
#include "tools/starling/commands.h"

namespace starling::tools {

// The job that the coordinators hand over as `text`, with the places of files of this machine: as the options say,
// else as the worker's own job file. Errors: kBadInput  that file is of another job, an option does not apply, a
// script is not there, or the folder of checkpoints cannot be written.
Result<Job> job_here(const WorkerCommand& command, const std::optional<Job>& own_job,
                     const std::string& text);

}  // namespace starling::tools
