#pragma once
// What `starling chaos` says and writes in the end.

#include <string>

#include "core/base/result.h"
#include "tools/chaos/report.h"

namespace starling::tools {

// Judges the evidence, writes report.json, report.html and junit.xml to the folder and prints the
// verdict. The exit code: 0 or 1. `repeat` may be empty. Errors: kBadInput  a file cannot be
// written.
Result<int> conclude(chaos::Report report, const std::string& folder);

}  // namespace starling::tools
