#pragma once
// What commands that write a report share: their folder and how they are told a duration.

#include <string>

#include "core/base/result.h"

namespace starling::tools {

// Makes it. Returns its absolute path. Errors: kBadInput  there is something in it.
Result<std::string> fresh_folder(const std::string& out);
Result<> write_file(const std::string& path, const std::string& text);
// "90", "90s", "10m", "1.5h" in seconds, from 0 to 30 days. Errors: kBadInput  names `option`.
Result<double> seconds_of(const std::string& option, const std::string& text);

}  // namespace starling::tools
