#pragma once
// What an evaluation comes to: the means over its batches.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/exact_sum.h"

namespace starling {

// Sums are exact, so the means are the same whatever the order. Threads: none; a value.
class EvaluationSum {
 public:
  // Adds batches, each with `width` numbers: its loss and its metrics. Numbers that are left over count
  // for nothing.
  void add(std::span<const double> batches, std::size_t width);
  // Returns the means of loss and metrics, NaN where a number is not finite; empty if there was no batch.
  std::vector<double> means() const;

 private:
  std::vector<ExactSum> sums_;
  std::vector<bool> finite_;
  std::uint64_t batches_ = 0;
};

}  // namespace starling
