#include "core/base/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace starling {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// Reads a file of lines "name value ..".
std::uint64_t value_in(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t value = 0;
    if (words >> word >> value && word == name) return value;
  }
  return 0;
}

// Reads a limit; "max", unreadable files, and version 1's largest number of pages are no limit.
std::uint64_t limit_in(const fs::path& path) {
  constexpr std::uint64_t kAboveAll = std::uint64_t{1} << 62;
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value && value < kAboveAll ? value : kNoLimit;
}

// Returns bytes of /proc/meminfo: of `name`, and of `swap` beside it; kNoLimit where it has no such line.
std::uint64_t of_machine(const char* name, const char* swap) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 50;  // KiB
  const std::uint64_t memory = value_in("/proc/meminfo", name);
  if (memory == 0 || memory > kMost) return kNoLimit;
  return 1024 * (memory + std::min(kMost, value_in("/proc/meminfo", swap)));
}

// Files are the names of a control group's memory, of one version of their interface.
struct Files {
  const char *root, *limit, *usage;
};
constexpr Files kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                          "memory.usage_in_bytes"};
constexpr Files kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current"};

// Returns what a group may still get. The kernel gives up what it keeps of files.
std::uint64_t free_of(const fs::path& group, const Files& files) {
  const std::uint64_t limit = limit_in(group / files.limit), usage = limit_in(group / files.usage);
  if (limit == kNoLimit || usage == kNoLimit) return kNoLimit;
  const fs::path stat = group / "memory.stat";
  const std::uint64_t kept = value_in(stat, "inactive_file") + value_in(stat, "active_file");
  return limit - std::min(limit, usage - std::min(usage, kept));
}

// Returns the least of what `of` says of the groups of this process and those above them.
template <class Of>
std::uint64_t least_of_groups(Of of) {
  std::uint64_t least = kNoLimit;
  std::ifstream file("/proc/self/cgroup");  // "4:memory:/a/b", of version 2 "0::/a/b"
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const Files& files = controllers.empty() ? kVersion2 : kVersion1;
    fs::path group = line.substr(second + 1);
    for (; group.has_relative_path(); group = group.parent_path())
      least = std::min(least, of(files.root / group.relative_path(), files));
    least = std::min(least, of(fs::path(files.root), files));
  }
  return least;
}

std::uint64_t known(std::uint64_t bytes) {
  return bytes == kNoLimit ? 0 : bytes;
}

}  // namespace

std::uint64_t memory_here() {
  return known(std::min(of_machine("MemTotal:", "SwapTotal:"),
                        least_of_groups([](const fs::path& group, const Files& files) {
                          return limit_in(group / files.limit);
                        })));
}

std::uint64_t memory_free_here() {
  return known(std::min(of_machine("MemAvailable:", "SwapFree:"), least_of_groups(free_of)));
}

std::uint64_t kills_for_memory() {
  return value_in("/proc/vmstat", "oom_kill");
}

Machine machine_here(const std::string& folder) {
  Machine here;
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof processors, &processors) == 0)
    here.processors = static_cast<std::uint32_t>(CPU_COUNT(&processors));
  here.memory = memory_here();
  here.memory_free = memory_free_here();
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) here.open_files = files.rlim_cur;
  struct statvfs disk {};
  if (::statvfs(folder.empty() ? "." : folder.c_str(), &disk) == 0)
    here.disk_free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  return here;
}

std::string memory_text(std::uint64_t bytes) {
  constexpr double kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
  const auto b = static_cast<double>(bytes);
  char text[32];
  if (b < 10 * kMiB)
    std::snprintf(text, sizeof text, "%.0f KiB", std::ceil(b / kKiB));
  else if (b < kGiB)
    std::snprintf(text, sizeof text, "%.0f MiB", b / kMiB);
  else
    std::snprintf(text, sizeof text, "%.1f GiB", b / kGiB);
  return text;
}

}  // namespace starling
