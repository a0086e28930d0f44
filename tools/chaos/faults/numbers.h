#pragma once
// Numbers draws one fault's random numbers: a function of a plan's seed and the fault's number.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/base/philox.h"

namespace starling::chaos {

class Numbers {
 public:
  Numbers(std::uint64_t seed, std::uint64_t fault) : seed_(seed), fault_(fault) {}
  double uniform() { return starling::uniform(next()); }
  std::uint32_t below(std::size_t n) {
    return static_cast<std::uint32_t>(std::min<double>(uniform() * double(n), double(n) - 1));
  }
  // Draws uniformly on a logarithmic scale, to milliseconds.
  double seconds(double low, double high) { return round(low * std::pow(high / low, uniform())); }
  static double round(double seconds) { return std::round(seconds * 1000) / 1000; }

 private:
  std::uint32_t next() {
    const auto index = static_cast<std::uint32_t>(drawn_ / 4);
    const auto block =
        philox4x32({index, static_cast<std::uint32_t>(fault_),
                    static_cast<std::uint32_t>(fault_ >> 32), 0x6368616f},
                   {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
    return block[drawn_++ % 4];
  }
  const std::uint64_t seed_, fault_;
  std::size_t drawn_ = 0;
};

}  // namespace starling::chaos
