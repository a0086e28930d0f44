#include "elastic/membership/health.h"

#include <algorithm>
#include <vector>

namespace starling::elastic {
namespace {

// Returns "301 ms"; below 10 ms "0.25 ms".
std::string ms_text(std::uint64_t ns) {
  const std::uint64_t ms = ns / 1'000'000, hundredths = ns / 10'000 % 100;
  if (ms >= 10) return std::to_string(ms) + " ms";
  return std::to_string(ms) + (hundredths < 10 ? ".0" : ".") + std::to_string(hundredths) + " ms";
}

bool computes(const Join& join) {
  return join.role != WorkerRole::kHold && join.machine.first_gradient_ns != 0;
}

// Returns the median of the times of members that compute; of an even number the longer one of the
// two in the middle. 0: none is known.
std::uint64_t median_of(const Group& group) {
  std::vector<std::uint64_t> times;
  if (!group.plan()) return 0;
  for (const Member& member : group.plan()->members)
    if (const auto* worker = group.find(member.who); worker && computes(worker->join))
      times.push_back(worker->join.machine.first_gradient_ns);
  if (times.empty()) return 0;
  std::ranges::sort(times);
  return times[times.size() / 2];
}

}  // namespace

std::optional<std::string> too_slow(const Join& joiner, const Group& group, std::uint32_t slowest) {
  const std::uint64_t here = joiner.machine.first_gradient_ns, median = median_of(group);
  if (slowest == 0 || median == 0 || !computes(joiner)) return std::nullopt;
  if (here / slowest <= median) return std::nullopt;
  return "a micro-batch takes " + ms_text(here) + " on this worker's machine and " +
         ms_text(median) + " on the median member's, more than " + std::to_string(slowest) +
         " times as long; [elastic].slowest";
}

std::optional<std::string> other_clock(const std::string& name, const Machine& machine) {
  const std::int64_t ahead = machine.clock_ahead_ms;
  if (ahead >= -kClockMs && ahead <= kClockMs) return std::nullopt;
  return "the clock of " + name + "'s machine is " +
         std::to_string((ahead > 0 ? ahead : -ahead) / 1000) + " s " +
         (ahead > 0 ? "ahead of" : "behind") +
         " the coordinator's: object storage and identity tokens refuse what is signed by a "
         "wrong clock";
}

}  // namespace starling::elastic
