#pragma once
// A process is known by the boot of its machine, its PID namespace, its number and its start, so that
// another one can tell that it is over, and never takes a later process of that number for it.

#include <string>

namespace starling {

// Returns this process's identity. Empty: the kernel does not say.
std::string process_identity();

// Returns whether the process of that identity is over for certain, also as a zombie. False: it lives,
// or this process cannot tell, as where it is on another machine or in another PID namespace.
bool is_over(const std::string& identity);

}  // namespace starling
