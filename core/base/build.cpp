#include "core/base/build.h"

#include <gnu/libc-version.h>

namespace starling {

std::string build_text() {
  return std::string("starling ") + STARLING_VERSION + ", " + STARLING_COMPILER + ", glibc " +
         gnu_get_libc_version();
}

}  // namespace starling
