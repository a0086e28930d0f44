#include "core/text/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/check.h"
#include "core/base/philox.h"

namespace starling {

std::uint32_t sample_token(const SamplingRule& rule, std::span<const float> logits,
                           std::uint32_t sample, std::uint64_t place) {
  struct Candidate {
    float logit;
    std::uint32_t token;
    double weight = 0;
  };
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (std::uint32_t token = 0; token < logits.size(); ++token)
    if (logits[token] > -HUGE_VALF) candidates.push_back({logits[token], token});
  STARLING_CHECK(!candidates.empty());
  if (rule.temperature == 0) return std::ranges::min_element(candidates, before)->token;
  const bool some = rule.top_k > 0 && rule.top_k < candidates.size();
  if (some) {
    std::ranges::nth_element(candidates, candidates.begin() + (rule.top_k - 1), before);
    candidates.resize(rule.top_k);
  }
  std::ranges::sort(candidates, before);
  double all = 0;
  for (Candidate& candidate : candidates) {
    const double below = double{candidates[0].logit} - candidate.logit;
    // An infinite logit leaves no place for others.
    candidate.weight = below == 0 || std::isnan(below) ? 1 : std::exp(-below / rule.temperature);
    all += candidate.weight;
  }
  if (rule.top_p < 1) {
    double kept = 0;
    std::size_t count = 0;
    while (count < candidates.size() && (count == 0 || kept < rule.top_p * all))
      kept += candidates[count++].weight;
    candidates.resize(count);
    all = kept;
  }
  const double at = uniform(random4(rule.seed, Purpose::kSampling, place, sample, 0)[0]) * all;
  double passed = 0;
  for (const Candidate& candidate : candidates)
    if ((passed += candidate.weight) > at) return candidate.token;
  return candidates.back().token;
}

}  // namespace starling
