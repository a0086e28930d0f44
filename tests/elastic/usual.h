#pragma once
// What most tests of a group and of a worker use.

#include <cstdint>

#include "core/base/ids.h"
#include "elastic/protocol/bugs.h"

namespace starling::elastic {

inline constexpr EpochId kFirst{1, 1}, kSecond{1, 2};
inline constexpr std::uint64_t kLease = 1000;  // ms

// One rule is broken, all others hold.
inline Bugs broken(bool Bugs::*rule) {
  Bugs bugs;
  bugs.*rule = true;
  return bugs;
}

}  // namespace starling::elastic
