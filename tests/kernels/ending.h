#pragma once
// ending_of() is for what ends the process: that is done in a child.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace starling::kernels {

struct Ending {
  int status;        // the exit code; -1: a signal
  std::string text;  // of stderr
};

// Does `work` in a child, which ends with 0 if that returns.
template <class Work>
Ending ending_of(const Work& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    work();
    _exit(0);
  }
  close(ends[1]);
  Ending ending{};
  char some[256];
  for (ssize_t got; (got = read(ends[0], some, sizeof some)) > 0;)
    ending.text.append(some, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  ending.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ending;
}

}  // namespace starling::kernels
