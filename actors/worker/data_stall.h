#pragma once
// DataStall says whether a worker's compute threads wait for data most of the time. A pure machine.

#include <cstdint>
#include <optional>

namespace starling::actors {

// Threads: one at a time.
class DataStall {
 public:
  // What the threads have done since the worker began, in ns of all of them together.
  struct Times {
    std::uint64_t waited = 0;   // for data
    std::uint64_t working = 0;  // for all else that a micro-batch takes
  };
  static constexpr std::uint64_t kWindowMs = 10'000;
  static constexpr std::uint8_t kPercent = 50;

  // Returns how much of the last whole window they waited, in percent; 0 below kPercent, and before
  // the first window is over. In a window in which no thread did anything it stays what it was.
  std::uint8_t look(Times now, std::uint64_t now_ms) {
    if (!began_ms_) {
      began_ = now;
      began_ms_ = now_ms;
    }
    if (now_ms - *began_ms_ < kWindowMs) return percent_;
    const std::uint64_t waited = now.waited - began_.waited,
                        all = waited + now.working - began_.working;
    if (all > 0) {
      const auto percent =
          static_cast<std::uint8_t>(100 * (static_cast<double>(waited) / static_cast<double>(all)));
      percent_ = percent < kPercent ? std::uint8_t{0} : percent;
    }
    began_ = now;
    began_ms_ = now_ms;
    return percent_;
  }

 private:
  Times began_;
  std::optional<std::uint64_t> began_ms_;  // of the window; none before the first look
  std::uint8_t percent_ = 0;
};

}  // namespace starling::actors
