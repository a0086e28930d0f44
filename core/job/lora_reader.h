#pragma once
// Reads [lora] of a job file.

#include "core/job/job.h"
#include "core/job/section.h"

namespace starling {

// Into the model of the job, whose own section has been read. LoraSpec::base stays empty where the section does not have
// it, which a coordinator's job has.
void read_lora(job_words::Section section, Job& job);

}  // namespace starling
