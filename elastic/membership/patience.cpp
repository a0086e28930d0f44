#include "elastic/membership/patience.h"

#include <algorithm>

namespace starling::elastic {
namespace {

// The time since which all waiting members wait; 0: no member waits.
std::uint64_t waited_since(std::span<const Standing> members) {
  std::uint64_t since = 0;
  for (const Standing& m : members)
    if (!m.owes) since = std::max(since, m.since_ms);
  return since;
}

}  // namespace

void StepTimes::epoch_begins(std::uint64_t now_ms) {
  known_ = false;
  begun_ms_ = now_ms;
}

void StepTimes::passed(std::uint64_t version, std::uint64_t now_ms) {
  if (known_ && version <= version_) return;
  // Heartbeats may report several steps at once: each counts as an equal part of the time.
  if (known_) last_ms_[next_++ % last_ms_.size()] = (now_ms - begun_ms_) / (version - version_);
  known_ = true;
  version_ = version;
  begun_ms_ = now_ms;
}

std::uint64_t StepTimes::longest_ms() const {
  return *std::max_element(last_ms_.begin(), last_ms_.end());
}

std::uint64_t patience_ms(std::span<const Standing> members, const StepTimes& steps,
                          std::uint32_t multiple, std::uint64_t floor_ms) {
  const std::uint64_t waited = waited_since(members);
  const std::uint64_t others = waited > steps.begun_ms() ? waited - steps.begun_ms() : 0;
  return std::max(floor_ms, multiple * std::max(steps.longest_ms(), others));
}

HeldUp held_up(std::span<const Standing> members, std::uint64_t now_ms, std::uint64_t patience_ms) {
  HeldUp held;
  held.since_ms = waited_since(members);
  if (held.since_ms == 0) return held;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!members[i].owes) continue;
    held.since_ms = std::max(held.since_ms, members[i].since_ms);
    held.by.push_back(i);
  }
  if (now_ms - held.since_ms <= patience_ms) held.by.clear();
  return held;
}

}  // namespace starling::elastic
