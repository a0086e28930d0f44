#pragma once
// run_program() runs small programs of the system (`ip`, `bridge`, `tc`) for their output.
//
// Threads: any. It waits until the program has ended.

#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling::chaos {

// Returns what it wrote to stdout; `input` is its stdin. Looks for the program in PATH and in
// /usr/sbin and /sbin; it lives in the calling thread's network namespace. Errors: kUnavailable
// there is no such program, or it ended with another status than 0: its first line on stderr.
Result<std::string> run_program(std::vector<std::string> words, const std::string& input = "");

}  // namespace starling::chaos
