#pragma once
// These make the job of `starling run` from its file and its command line.

#include <string>

#include "core/base/result.h"
#include "core/job/job.h"
#include "tools/starling/commands.h"

namespace starling::tools {

// Errors: kBadInput  the file, or the option that is wrong.
Result<Job> job_to_run(const RunOptions& options);

// Returns a new folder below runs/, by the job's name and the time.
std::string default_folder(const Job& job);

// Errors: kBadInput  the file cannot be written.
Result<> write_job(const Job& job, const std::string& path);

}  // namespace starling::tools
