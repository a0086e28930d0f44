#pragma once
// Reads the sections [optimizer] and [local] of a job file. Only for core/job/job_reader.cpp.

#include "core/job/job.h"
#include "core/job/section.h"

namespace starling::job_words {

inline constexpr std::uint64_t kStepsMax = 0xffff'ffff;  // what a random number's counter holds

// Both want a job that has the keys of [job] already; read_optimizer() one that has its local steps, too.
void read_local(Section s, Job& job);
void read_optimizer(Section s, Job& job);

}  // namespace starling::job_words
