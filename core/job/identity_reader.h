#pragma once
// Reads the section [identity] of a job file.

#include <string>

#include "core/job/identity.h"
#include "core/job/section.h"

namespace starling {

// `base` is the folder for relative paths.
void read_identity(job_words::Section s, const std::string& base, IdentitySpec& identity);

}  // namespace starling
