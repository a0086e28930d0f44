#pragma once
// Reads job files whole: a job with adapters also names the weights that they are of.

#include <string>

#include "core/base/result.h"
#include "core/job/job.h"

namespace starling {

// Reads a job file, whole: of adapters also what they adapt. Errors: as read_job() and name_base().
Result<Job> load_job(const std::string& path);

// Gives LoraSpec::base to a job with adapters that has none, from [model].from, which it reads whole; a job that has one,
// as that of a coordinator, is left as it is. Errors: kBadInput  the weights cannot be read.
Result<> name_base(Job& job);

}  // namespace starling
