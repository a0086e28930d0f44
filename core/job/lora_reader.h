#pragma once
// Reads [lora] of a job file.

#include "core/job/job.h"
#include "core/job/section.h"

namespace starling {

inline constexpr const char* kLacksBase =
    "adapters are of weights that are there: [model].from must name them";
// Whether a job file has [lora] and no [model].from. Callers ask before they read the model: its reader would name keys
// that weights have.
bool lacks_base(const toml::table& root);

// Into the model of the job, whose own section has been read. LoraSpec::base stays empty where the section does not have
// it, which a coordinator's job has.
void read_lora(job_words::Section section, Job& job);

}  // namespace starling
