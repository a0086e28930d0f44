#pragma once
// Small programs of the system (`ip`, `bridge`, `tc`), run for what they say.
//
// Threads: any. Waits until the program has ended.

#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling::chaos {

// What it wrote to stdout; `input` is its stdin. The program is looked for in PATH and in /usr/sbin
// and /sbin, and lives in the network namespace of the calling thread. Errors: kUnavailable  there
// is no such program, or it ended with another status than 0: its first line on stderr.
Result<std::string> run_program(std::vector<std::string> words, const std::string& input = "");

}  // namespace starling::chaos
