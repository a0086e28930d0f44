#include "tools/starling/memory.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/job/models/table.h"
#include "kernels/models/local_maker.h"
#include "kernels/optim/optimizer.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// Reads a file of lines "name value ..".
std::uint64_t value_in(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t value = 0;
    if (words >> word >> value && word == name) return value;
  }
  return 0;
}

// Reads a limit; "max" and unreadable files are no limit.
std::uint64_t limit_in(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : kNoLimit;
}

// Returns the least limit of a group and those above it.
std::uint64_t limit_from(const fs::path& root, fs::path group, const char* name) {
  std::uint64_t least = limit_in(root / name);
  for (; group.has_relative_path(); group = group.parent_path())
    least = std::min(least, limit_in(root / group.relative_path() / name));
  return least;
}

std::uint64_t limit_of_group() {
  std::uint64_t least = kNoLimit;
  std::ifstream file("/proc/self/cgroup");  // "4:memory:/a/b", of version 2 "0::/a/b"
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty())
      least = std::min(least, limit_from("/sys/fs/cgroup", group, "memory.max"));
    if (controllers == "memory")
      least = std::min(least, limit_from("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
  }
  return least;
}

}  // namespace

MemoryNeed memory_of_worker(const Job& job, const Layout& layout, std::uint32_t workers,
                            std::uint32_t threads) {
  const auto bytes = [&](What what) { return layout.bytes_of(what); };
  const std::uint64_t copies = std::min<std::uint64_t>(job.replicas + 1, workers);
  const std::uint64_t moments = kernels::moments(job.optimizer) * bytes(What::kMoment);
  const bool offloaded = job.offload == Offload::kMoments;
  const std::uint64_t held = (bytes(What::kWeights) + bytes(What::kSums) +
                              (offloaded && job.isa == "cuda" ? 0 : moments)) /
                             workers * copies;
  const std::uint64_t gradient =
      layout.largest_part() / kBlock * Layout::block_bytes(What::kGradient);
  const std::uint64_t local = job.local.on() ? kernels::LocalMaker::bytes(job, layout) : 0;
  // These are the working parameters, the sums, and each thread's gradient of a part and its local steps.
  const std::uint64_t there =
      bytes(What::kParameters) + bytes(What::kSums) + threads * (gradient + local) + held;
  if (job.isa != "cuda") return {.host = there};
  // A thread of a built-in model makes one part's gradient while another's is read, and rounds parameters to halves.
  const bool built_in = kind_of(job.model).computed_by_kernels;
  const std::uint64_t halves =
      job.precision == Precision::kFp32 ? 0 : layout.elements() * sizeof(std::uint16_t);
  const std::uint64_t thread = built_in ? gradient + halves : 0;
  // Sums leave and arrive through pinned memory, which has room for all of them, as for moments.
  return {.host = 2 * bytes(What::kSums) + (offloaded ? moments : 0),
          .gpu = there + threads * thread};
}

std::uint64_t memory_here() {
  const std::uint64_t machine =
      1024 * (value_in("/proc/meminfo", "MemTotal:") + value_in("/proc/meminfo", "SwapTotal:"));
  return std::min(machine == 0 ? kNoLimit : machine, limit_of_group()) % kNoLimit;
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

Result<> enough_memory(const Job& job, const Layout& layout, std::uint32_t workers,
                       std::uint32_t here, std::uint32_t threads) {
  const std::uint64_t need = here * memory_of_worker(job, layout, workers, threads).host;
  const std::uint64_t there = memory_here();
  if (there == 0 || need <= there) return ok();
  return Error(Code::kUnavailable, "not enough memory: " + std::to_string(here) +
                                       (here == 1 ? " worker needs " : " workers here need ") +
                                       "at least " + memory_text(need) + ", there is " +
                                       memory_text(there));
}

std::uint64_t kills_for_memory() {
  return value_in("/proc/vmstat", "oom_kill");
}

}  // namespace starling::tools
