#pragma once
// Reads the [optimizer] section of a job file. Only for core/job/job_reader.cpp.

#include "core/job/job.h"
#include "core/job/section.h"

namespace starling::job_words {

inline constexpr std::uint64_t kStepsMax = 0xffff'ffff;  // what a random number's counter holds

// `job` has its number of steps already.
void read_optimizer(Section s, const Job& job, OptimizerSpec& o);

}  // namespace starling::job_words
