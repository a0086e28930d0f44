#include "core/base/standard_streams.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>

namespace starling {
namespace {

// In a process of its own, which has these descriptors closed. 0: no file that the process opens
// gets one of the three numbers, and writing to them is no error.
int status_with_closed(std::initializer_list<int> closed) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int fd : closed) ::close(fd);
    open_closed_streams();
    const int file = ::open("/", O_RDONLY | O_DIRECTORY);
    if (file <= STDERR_FILENO) ::_exit(1);
    for (const int fd : closed)
      if (fd != STDIN_FILENO && ::write(fd, "x", 1) != 1) ::_exit(2);
    open_closed_streams();
    // Nothing is kept open beyond them.
    ::_exit(::open("/", O_RDONLY | O_DIRECTORY) == file + 1 ? 0 : 3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST_CASE("closed standard streams: no file gets their numbers") {
  CHECK(status_with_closed({}) == 0);
  CHECK(status_with_closed({0}) == 0);
  CHECK(status_with_closed({1}) == 0);
  CHECK(status_with_closed({0, 2}) == 0);
  CHECK(status_with_closed({0, 1, 2}) == 0);
}

}  // namespace
}  // namespace starling
