#include "core/base/check.h"

#include <unistd.h>

#include <cstdio>

#include "core/base/exit.h"

namespace starling {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "starling: internal error: %s:%d: %s does not hold%s%s\n", file, line,
               condition, values.empty() ? "" : ": ", values.c_str());
  std::fflush(stderr);
  ::_exit(kExitInternal);
}

}  // namespace starling
