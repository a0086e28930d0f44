#pragma once
// WideSum sums totals on the grid and raw side-list values
// exactly and rounds once; SquareSum sums squares exactly.

#include <array>
#include <cstdint>
#include <span>

#include "core/base/exact_sum.h"
#include "core/base/ids.h"
#include "kernels/grid/wide_sum.h"

namespace starling::kernels {

// WideSum is an integer in units of 2^-149 for kMicroBatchesMax floats and one grid total.
// Threads: none; a value.
class WideSum {
 public:
  void add(float x);                                          // exactly; requires a finite x
  void add_total(std::int32_t total, std::int16_t exponent);  // total * 2^exponent, exactly

  // Returns fp32(sum / micro_batches), rounded once, half to even; infinity if out of range.
  float mean(std::uint32_t micro_batches) const;

 private:
  WideBits bits_;
};

// SquareSum is an exact sum of squares of floats, order-free: it
// sums squares of significands, integers below 2^48, per exponent.
// Threads: none; a value.
class SquareSum {
 public:
  static constexpr std::size_t kWords = 2 * 256;

  void add(std::span<const float> values);  // requires finite values
  // Adds a sum of squares of floats that are multiples of 2^unit, in
  // units of its square: low and high 64 bits. unit: from -149 to 105.
  void add_sum(std::span<const std::uint64_t, 2> sum, int unit);
  // Adds the sums per exponent, in two words each, low one first, to those in `words`.
  void add_to(std::span<std::uint64_t, kWords> words);
  // Returns the sum that such words stand for.
  static ExactSum sum_of(std::span<const std::uint64_t, kWords> words);
  ExactSum sum() const;

 private:
  void flush();

  // A bin holds 2^16 squares of 48 bits. Neighbours go to different banks,
  // as most have the same exponent and would wait for each other's sum.
  static constexpr std::uint32_t kTermsMax = 1u << 16;
  static constexpr std::size_t kBanks = 4;
  std::array<std::array<std::uint64_t, 256>, kBanks> bins_{};
  std::uint32_t terms_ = 0;  // since the last flush
  std::array<std::uint64_t, kWords> flushed_{};
};

}  // namespace starling::kernels
