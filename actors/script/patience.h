#pragma once
// Patience is how long a script's process may take for an answer before it counts as lost.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace starling::actors::script {

// Threads: any.
class Patience {
 public:
  using milliseconds = std::chrono::milliseconds;
  static constexpr milliseconds kMin{1500};  // for a pass, once some have been seen,
  static constexpr int kFactor = 20;  // and so many times as long as the longest of them took

  explicit Patience(milliseconds most) : most_(most) {}

  milliseconds most() const { return most_; }
  // A machine may be busy with other work: each attempt at a pass is given twice as long as the one
  // before it. attempt: counted from 0.
  milliseconds of_pass(int attempt) const {
    const std::int64_t longest = longest_ms_;
    if (longest == 0) return most_;
    return std::min(most_, std::max(kMin, milliseconds(longest * kFactor)) * (1 << attempt));
  }
  // Notes how long a pass took that was answered at the first attempt: without
  // lost attempts and without the start of another process.
  void took(std::chrono::steady_clock::duration pass) {
    const auto ms = std::chrono::ceil<milliseconds>(pass).count();
    std::int64_t longest = longest_ms_;
    while (ms > longest && !longest_ms_.compare_exchange_weak(longest, ms)) continue;
  }

 private:
  const milliseconds most_;
  std::atomic<std::int64_t> longest_ms_ = 0;  // 0: none was seen
};

}  // namespace starling::actors::script
