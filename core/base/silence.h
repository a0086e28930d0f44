#pragma once
// How long one process is not heard by another, and how long that is borne: lateness that most
// share is no fault of one (docs/decisions/018-late-like-everybody.md). Leaders judge workers so,
// coordinators each other, and workers their connections. All times: ms of the listener's clock.

#include <array>
#include <cstdint>
#include <vector>

namespace starling {

// Silence says when one process was heard, and the longest that it was not, of late. A value.
class Silence {
 public:
  void hear(std::uint64_t now_ms, std::uint64_t lease_ms);
  // Time since the process was heard; a listener that began later counts from then.
  std::uint64_t open_ms(std::uint64_t now_ms, std::uint64_t began_ms) const;
  // The longest silence of those that ended within the last ten to twenty leases, and the open one.
  std::uint64_t longest_ms(std::uint64_t now_ms, std::uint64_t began_ms,
                           std::uint64_t lease_ms) const;

 private:
  std::uint64_t heard_ms_ = 0;                      // 0: not yet
  std::uint64_t window_ = 0;                        // in which it was heard last
  std::array<std::uint64_t, 2> ended_ms_ = {0, 0};  // longest in that window and in the one before
};

// How long a process may be silent before it counts as lost: `least_ms`, and longer where the
// others are late as well, as lateness that all share is that of the machine, the network or the
// listener. `longest`: the longest silence of each process that is judged, in any order. Four times
// the median of the others', at least `least_ms` and at most ten times that.
std::uint64_t tolerance_ms(std::vector<std::uint64_t> longest, std::uint64_t least_ms);

}  // namespace starling
