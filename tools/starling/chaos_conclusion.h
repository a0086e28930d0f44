#pragma once
// conclude() makes the output and files at the end of `starling chaos`.

#include <string>

#include "core/base/result.h"
#include "tools/chaos/report.h"

namespace starling::tools {

// Judges the evidence, writes report.json, report.html and junit.xml
// to the folder and prints the verdict. Returns the exit code: 0 or 1.
// `repeat` may be empty. Errors: kBadInput  a file cannot be written.
Result<int> conclude(chaos::Report report, const std::string& folder);

}  // namespace starling::tools
