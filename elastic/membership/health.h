#pragma once
// These judge a worker that asks to join by what it says of its machine (Machine): pure functions of
// the Join and the group.

#include <cstdint>
#include <optional>
#include <string>

#include "core/wire/messages.h"
#include "elastic/membership/group.h"

namespace starling::elastic {

// other_clock() warns of clocks that differ by more than this.
inline constexpr std::int64_t kClockMs = 30'000;

// Returns why a worker would keep the others waiting: its first gradient took more than `slowest`
// times the median of the members' that compute. Nothing: it would not, or it computes nothing, or
// the times are not known. `slowest` 0: never.
std::optional<std::string> too_slow(const Join& joiner, const Group& group, std::uint32_t slowest);

// Returns a warning where the worker's clock is not the coordinator's, within kClockMs.
std::optional<std::string> other_clock(const std::string& name, const Machine& machine);

}  // namespace starling::elastic
