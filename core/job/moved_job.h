#pragma once
// A job whose files lie elsewhere on this machine.

#include <string>

#include "core/job/job.h"

namespace starling {

// Reads the text of format_job() with another path of [data], unless `data` is empty: the text's own need not be
// there. Errors: as parse_job().
Result<Job> parse_moved_job(const std::string& toml, const std::string& data);

}  // namespace starling
