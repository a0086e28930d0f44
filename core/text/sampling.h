#pragma once
// Which token follows, drawn from a language model's logits.

#include <cstdint>
#include <span>

namespace starling {

struct SamplingRule {
  double temperature = 1;   // 0: the most likely token
  std::uint32_t top_k = 0;  // only the most likely ones; 0: all
  double top_p = 1;         // only the most likely ones that together have at least so much
  std::uint64_t seed = 1;
};

// Draws token number `place` of text number `sample`: a function of the logits and these alone. Of equal
// logits that of the smaller token comes first. `logits` has at least one that is not NaN or -infinity;
// others are never drawn.
std::uint32_t sample_token(const SamplingRule& rule, std::span<const float> logits,
                           std::uint32_t sample, std::uint64_t place);

}  // namespace starling
