#pragma once
// Jobs that a script has described (tools/python/starling/options.py) come in a file without a
// name, and people know only the script and the arguments of starling.train().

#include <string>

#include "core/job/job.h"

namespace starling {

// Whether a job is read from an open file, as /proc/self/fd/3, and so described by a script.
bool is_described_by_script(const std::string& path);

// The name that people know for the job that was read from there: its file, or its script.
std::string name_of_job(const std::string& path, const Job& job);

// "sequences must be .., is 0; [job].sequences, line 6" becomes
// "batch_size must be .., is 0; starling.train()".
std::string in_words_of_script(std::string text);

}  // namespace starling
