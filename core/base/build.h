#pragma once
// Names this build, for people who compare two of them.

#include <string>

namespace starling {

// "starling 0.1.0, GNU 12.2.0, glibc 2.36": version, compiler and, as it runs, the C library.
std::string build_text();

}  // namespace starling
