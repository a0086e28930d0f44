#pragma once
// The scale of the loss where gradients are computed in fp16, whose smallest magnitude is 2^-24: what
// is smaller would be lost (Micikevicius et al., 2018, "Mixed Precision Training", section 3.2). A
// power of two, so that it changes no bit of what neither overflows nor is lost.
//
// The scale of a step is part of its record, and that of the next one a pure function of it: halved
// after a skipped step, doubled after so many others in a row.

#include <algorithm>
#include <cstdint>

namespace starling {

struct LossScale {
  std::uint8_t log2 = 0;
  // How many steps in a row have been computed with this scale, this one counted; 0: the loss is
  // not scaled.
  std::uint32_t steps = 0;
  bool operator==(const LossScale&) const = default;
};

struct LossScaleRule {
  static constexpr std::uint8_t kMax = 24;  // log2: the largest scale
  bool on = false;
  std::uint8_t first = 16;     // log2 of the scale at the start
  std::uint32_t every = 2000;  // steps until it is doubled
  bool operator==(const LossScaleRule&) const = default;
};

// The scale of the step after one with scale `last`, {} before the first step.
constexpr LossScale next_scale(const LossScaleRule& rule, LossScale last, bool skipped) {
  if (!rule.on) return {};
  if (last.steps == 0) return {rule.first, 1};
  if (skipped) return {static_cast<std::uint8_t>(std::max(int{last.log2}, 1) - 1), 1};
  if (last.steps < rule.every) return {last.log2, last.steps + 1};
  return {std::min(static_cast<std::uint8_t>(last.log2 + 1), LossScaleRule::kMax), 1};
}

}  // namespace starling
