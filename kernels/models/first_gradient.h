#pragma once
// The gradient that a worker's fingerprint and its first exponents come from.

#include <span>
#include <vector>

#include "core/base/result.h"
#include "kernels/models/gradient_maker.h"

namespace starling::kernels {

struct FirstGradient {
  MicroBatchResult result;
  std::vector<float> gradient;  // [layout.elements()], the uses of each part added up
};

// Of one batch. parameters [layout.elements()]: in the host's memory, or in shared() memory of the
// device where processes beside this one compute.
// On a device with arithmetic of its own the same is computed three times, the second time beside a
// queue that is busy; a device that does not repeat itself has no place in a job.
// Errors: as Model::pass(); kBadInput  other bits than the first time.
Result<FirstGradient> first_gradient(const Job& job, const Model& model, const Layout& layout,
                                     Device& device, std::span<const float> parameters,
                                     const Batch& batch);

}  // namespace starling::kernels
