#pragma once
// An application can bring its own optimizers: `kind = "own"` in a job file's [optimizer].

#include <cstdint>
#include <functional>
#include <span>

#include "core/base/named.h"

namespace starling::kernels {

// An OwnStep is the same for all elements of one step.
struct OwnStep {
  double rate = 0;          // learning rate of the step
  float clip = 1;           // factor of the gradient before its use
  std::uint64_t t = 1;      // 1-based number of the update
  double weight_decay = 0;  // of the job file; 0 where the tensor has fewer than two dimensions
};

struct OwnOptimizer {
  unsigned moments = 1;  // arrays that it keeps per parameter, 1 or 2; they start as zeros
  // Updates elementwise: element i of the result is a function of element i of the arguments and
  // of the step, of correctly rounded operations, so that bits are the same wherever the spans are
  // cut and on every worker. All spans have the same length; `second` is empty with one moment.
  std::function<void(const OwnStep& step, std::span<const float> gradient, std::span<float> weights,
                     std::span<float> first, std::span<float> second)>
      update;
};

}  // namespace starling::kernels
