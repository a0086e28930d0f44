#pragma once
// Checks for our own bugs; on in release. Never on anything that came from outside the process.

#include <sstream>
#include <string>

namespace starling {

// Prints one line to stderr and ends the process with exit code 5; state on disk is untouched.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);

}  // namespace starling

#define STARLING_CHECK(cond)                                              \
  do {                                                                    \
    if (!(cond)) ::starling::check_failed(__FILE__, __LINE__, #cond, {}); \
  } while (false)

// STARLING_CHECK_MSG(a < b, "a=" << a << " b=" << b)
#define STARLING_CHECK_MSG(cond, stream)                                                \
  do {                                                                                  \
    if (!(cond)) {                                                                      \
      std::ostringstream starling_check_values;                                         \
      starling_check_values << stream;                                                  \
      ::starling::check_failed(__FILE__, __LINE__, #cond, starling_check_values.str()); \
    }                                                                                   \
  } while (false)
