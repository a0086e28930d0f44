#pragma once
// The stacks of another process's threads, by elfutils' libdwfl (ptrace).

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling::tools {

// Names of functions, the innermost first; "?" where a frame has none. By thread id.
using Stacks = std::map<pid_t, std::vector<std::string>>;

// Stops each thread of the process for a moment and walks its stack, 64 frames at most.
// Errors: kUnavailable  the process is gone, or this user may not look into it; the text says what helps.
Result<Stacks> stacks_of(pid_t pid);

// Returns what the Python interpreters of a script's process do in each of their threads, as `faulthandler` says it;
// empty: the process is none of a script. Sends the process a signal that it answers whatever it is at, and waits a
// second at most.
std::string python_stacks_of(pid_t pid);

}  // namespace starling::tools
