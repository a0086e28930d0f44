#include "actors/files.h"

#include <sys/resource.h>

#include <limits>

namespace starling::actors {

namespace {
constexpr std::size_t kOther = 64;  // logs, data, checkpoints, threads' own
}

void raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // error: it stays; too_many_files() tells if it is too low
}

std::size_t open_files_max() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<std::size_t>::max();
  return limit.rlim_cur;
}

std::size_t files_of_worker(std::size_t world) {
  return kOther + 2 * world;
}

std::size_t files_of_coordinator(std::size_t workers) {
  return (kOther + 4 * workers) * 4 / 3;
}

std::string too_many_files(std::size_t workers, const char* process, std::size_t needed) {
  const std::size_t most = open_files_max();
  if (needed <= most) return {};
  return std::to_string(workers) + " workers need " + std::to_string(needed) +
         " open files in each " + process + ", " + std::to_string(most) +
         " are allowed; raise the limit (ulimit -n) or take fewer workers";
}

}  // namespace starling::actors
