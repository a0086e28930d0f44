#include "core/base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace starling {

void open_closed_streams() {
  for (;;) {
    // open() takes the lowest free number. Without O_CLOEXEC: children are to have it too.
    int fd = ::open("/dev/null", O_RDWR);
    if (fd < 0) fd = ::open("/", O_RDONLY | O_DIRECTORY);
    if (fd > STDERR_FILENO) ::close(fd);
    if (fd < 0 || fd > STDERR_FILENO) return;
  }
}

}  // namespace starling
