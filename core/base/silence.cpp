#include "core/base/silence.h"

#include <algorithm>
#include <cstddef>

namespace starling {
namespace {

constexpr std::uint64_t kWindowLeases = 10;  // how long a silence that ended is remembered
constexpr std::uint64_t kTimesMedian = 4;    // the latest of many is later than the median
constexpr std::uint64_t kTimesMax = 10;      // where most are gone at once, they must be missed too

}  // namespace

void Silence::hear(std::uint64_t now_ms, std::uint64_t lease_ms) {
  const std::uint64_t window = now_ms / (kWindowLeases * std::max<std::uint64_t>(1, lease_ms));
  if (window != window_) {
    ended_ms_ = {0, window == window_ + 1 ? ended_ms_[0] : 0};
    window_ = window;
  }
  if (heard_ms_ != 0) ended_ms_[0] = std::max(ended_ms_[0], now_ms - heard_ms_);
  heard_ms_ = now_ms;
}

std::uint64_t Silence::open_ms(std::uint64_t now_ms, std::uint64_t began_ms) const {
  return now_ms - std::max(heard_ms_, began_ms);
}

std::uint64_t Silence::longest_ms(std::uint64_t now_ms, std::uint64_t began_ms,
                                  std::uint64_t lease_ms) const {
  const std::uint64_t window = now_ms / (kWindowLeases * std::max<std::uint64_t>(1, lease_ms));
  std::uint64_t longest = open_ms(now_ms, began_ms);
  if (window - window_ <= 1) longest = std::max(longest, ended_ms_[0]);
  if (window == window_) longest = std::max(longest, ended_ms_[1]);
  return longest;
}

std::uint64_t tolerance_ms(std::vector<std::uint64_t> longest, std::uint64_t least_ms) {
  if (longest.size() < 2) return least_ms;  // there are no others
  // The caller asks about the latest of all, so the lower median of the others is this one.
  const auto middle = longest.begin() + static_cast<std::ptrdiff_t>((longest.size() - 2) / 2);
  std::nth_element(longest.begin(), middle, longest.end());
  return std::clamp(kTimesMedian * *middle, least_ms, kTimesMax * least_ms);
}

}  // namespace starling
