#pragma once
// The programs that this one starts.

#include <string>

namespace starling {

// Returns the absolute path of the first program of this name in the folders of PATH, then in `more`, which
// has ':' between folders as PATH has; empty: there is none. An empty folder of PATH, for a shell the one it is
// in, is passed over: what root starts is not what lies there by chance.
std::string find_program(const std::string& name, const std::string& more = "");

// Returns the Python that runs scripts, as posix_spawnp() takes it: that of STARLING_PYTHON, else "python3".
std::string python_program();

}  // namespace starling
