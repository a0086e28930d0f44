#pragma once
// The simulator's dice: one stream per purpose, so that one fault more does not shift the rest.

#include <cstdint>

#include "core/base/hash.h"

namespace starling::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix64(seed)) {}
  Random(std::uint64_t seed, std::uint64_t purpose) : state_(mix64(seed, purpose)) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ull;
    return mix64(state_);
  }
  // Uniform in [0, n); 0 for n = 0.
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : next() % n; }
  // Uniform in [low, high].
  std::uint64_t range(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }

 private:
  std::uint64_t state_;
};

}  // namespace starling::sim
