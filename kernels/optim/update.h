#pragma once
// These functions make one element's step of each optimizer: correctly rounded operations in
// a fixed order, the same bits everywhere. A compiler for another processor reads this too.

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/device/both.h"
#include "kernels/device/jobs.h"

namespace starling::kernels {

// These are the UpdateNumbers that blocks of a group need.
struct AdamNumbers {
  float clip, b1, c1, b2, c2, eps, step, root, keep;
};
STARLING_BOTH constexpr AdamNumbers adam_numbers(const UpdateNumbers& n, std::uint32_t group) {
  const GroupNumbers& g = n.groups[group];
  return {n.clip, n.b1, n.c1, n.b2, n.c2, n.eps, g.rate, n.root, g.decay};
}
struct SgdNumbers {
  float clip, mu, rate, decay, own, ahead;
};
STARLING_BOTH constexpr SgdNumbers sgd_numbers(const UpdateNumbers& n, std::uint32_t group) {
  const GroupNumbers& g = n.groups[group];
  return {n.clip, n.mu, g.rate, g.decay, n.own, n.ahead};
}

// Makes a step of AdamW and Adam: gradient, weight and both moments.
STARLING_BOTH inline void adam(const AdamNumbers& n, float gradient, float& w, float& m, float& v) {
  const float g = gradient * n.clip;
  const float mi = n.b1 * m + n.c1 * g;
  const float vi = n.b2 * v + n.c2 * (g * g);
  m = mi;
  v = vi;
  w = w * n.keep - n.step * (mi / (std::sqrt(vi) * n.root + n.eps));
}

// Makes a step of SGD: gradient, weight and momentum.
STARLING_BOTH inline void sgd(const SgdNumbers& n, float gradient, float& w, float& momentum) {
  const float g = gradient * n.clip + n.decay * w;
  const float b = n.mu * momentum + g;
  momentum = b;
  w = w - n.rate * (n.own * g + n.ahead * b);
}

// Returns before - after, and zero of equal bits: two infinities have no difference.
STARLING_BOTH inline float lost(float before, float after) {
  return std::bit_cast<std::uint32_t>(before) == std::bit_cast<std::uint32_t>(after)
             ? 0
             : before - after;
}

// Makes a step of running statistics, whose gradient is old less new.
STARLING_BOTH inline void statistic(float gradient, float& w) {
  w = w - gradient;
}

}  // namespace starling::kernels
