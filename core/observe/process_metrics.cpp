#include "core/observe/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace starling {
namespace {

// Returns fields of /proc/self/stat from the third on; the second, a name, may have blanks.
double field_of_stat(int number) {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  text.erase(0, std::min(text.size(), text.rfind(')') + 1));
  std::istringstream fields(text);
  std::string field;
  for (int at = 2; at < number; ++at) fields >> field;
  return field.empty() ? 0 : std::strtod(field.c_str(), nullptr);
}

// Returns when the machine was started, Unix time.
double boot_time() {
  std::ifstream file("/proc/stat");
  std::string word;
  double value = 0;
  while (file >> word)
    if (word == "btime" && file >> value) return value;
  return 0;
}

}  // namespace

void write_process(Exposition& out) {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) / 1e6; };
  out.counter("process_cpu_seconds", "Processor time, user and system.",
              {{"", seconds(used.ru_utime) + seconds(used.ru_stime)}});
  const double pages = field_of_stat(24);
  out.gauge("process_resident_memory_bytes", "Memory that is resident.",
            pages * double(::sysconf(_SC_PAGESIZE)));
  std::error_code error;
  const auto files = std::distance(std::filesystem::directory_iterator("/proc/self/fd", error),
                                   std::filesystem::directory_iterator());
  if (!error) out.gauge("process_open_fds", "Open file descriptors.", double(files));
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    out.gauge("process_max_fds", "Largest number of them.", double(limit.rlim_cur));
  if (const double booted = boot_time(); booted > 0)
    out.gauge("process_start_time_seconds", "Start of the process, Unix time.",
              booted + field_of_stat(22) / double(::sysconf(_SC_CLK_TCK)));
}

}  // namespace starling
