#include "tools/starling/memory.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "core/job/models/table.h"
#include "elastic/membership/placement.h"
#include "kernels/device/granules.h"
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

// Returns the bytes of a GPU behind an array of four bytes an element that has what a worker holds, of that of
// `workers` which takes most: whole granules of the driver's (decision 079).
std::uint64_t held_on_gpu(const Job& job, const Layout& layout, std::uint32_t workers) {
  constexpr std::size_t kGrain = 2u << 20;
  elastic::PlacementInput in;
  in.segments = layout.segments();
  in.bucket_segments = layout.bucket(0).count;
  in.replicas = job.replicas;
  in.members.resize(workers);
  std::vector<kernels::Granules> of(workers,
                                    kernels::Granules(layout.bytes_of(What::kWeights), kGrain));
  const auto holders = elastic::target_holders(in);
  for (SegmentId s = 0; s < layout.segments(); ++s)
    for (const Rank rank : holders[s])
      of[rank].take(layout.first_element(s) * sizeof(float),
                    layout.bytes_of({s, 1}, What::kWeights));
  std::uint64_t most = 0;
  for (const kernels::Granules& granules : of) {
    std::uint64_t bytes = 0;
    for (const auto& run : granules.mapped()) bytes += run.count;
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

MemoryNeed memory_of_worker(const Job& job, const Layout& layout, std::uint32_t workers,
                            std::uint32_t threads) {
  const auto bytes = [&](What what) { return layout.bytes_of(what); };
  const std::uint64_t moments = kernels::moments(job.optimizer);
  const std::uint64_t gradient =
      layout.largest_part() / kBlock * Layout::block_bytes(What::kGradient);
  const std::uint64_t local = job.local.on() ? kernels::LocalMaker::bytes(job, layout) : 0;
  // These are the working parameters, the sums, and each thread's gradient of a part and its local steps.
  const std::uint64_t whole =
      bytes(What::kParameters) + bytes(What::kSums) + threads * (gradient + local);
  if (job.isa != "cuda") {
    const std::uint64_t copies = std::min<std::uint64_t>(job.replicas + 1, workers);
    const std::uint64_t state =
        bytes(What::kWeights) + bytes(What::kSums) + moments * bytes(What::kMoment);
    return {.host = whole + state / workers * copies};
  }
  // A thread of a built-in model makes one part's gradient while another's is read, and rounds parameters to halves.
  const bool built_in = kind_of(job.model).computed_by_kernels;
  const std::uint64_t halves =
      job.precision == Precision::kFp32 ? 0 : layout.elements() * sizeof(std::uint16_t);
  const std::uint64_t thread = built_in ? gradient + halves : 0;
  const bool offloaded = job.offload == Offload::kMoments;
  const std::uint64_t arrays = 2 + (offloaded ? 0 : moments);  // weights, totals, moments
  // Sums leave and arrive through pinned memory, which has room for all of them, as for moments.
  return {.host = 2 * bytes(What::kSums) + (offloaded ? moments * bytes(What::kMoment) : 0),
          .gpu = whole + threads * thread + arrays * held_on_gpu(job, layout, workers)};
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
