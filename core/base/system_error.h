#pragma once
// Errors of system calls, with what errno says.

#include <cerrno>
#include <cstring>
#include <string>

#include "core/base/result.h"

namespace starling {

// kBadInput, of a file that somebody named: "cannot open PATH: No such file or directory".
inline Error system_error(const std::string& what, const std::string& path) {
  return bad_input(what + " " + path + ": " + std::strerror(errno));
}

// kUnavailable: "no process: Resource temporarily unavailable".
inline Error unavailable(const std::string& what) {
  return Error(Code::kUnavailable, what + ": " + std::strerror(errno));
}

}  // namespace starling
