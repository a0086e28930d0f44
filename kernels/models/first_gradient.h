#pragma once
// Whole gradients of batches, for those who look at them: set-up, whose fingerprint and first exponents
// come from one, and comparisons.

#include <memory>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "kernels/device/array.h"
#include "kernels/models/gradient_maker.h"

namespace starling::kernels {

// Threads: one at a time. Borrows what the constructor is given but the job.
class WholeGradients {
 public:
  // Of batches of exactly `sequences`; the job's model, precision and recompute.
  WholeGradients(const Job& job, const Model& model, const Layout& layout, Device& device,
                 std::uint32_t sequences);

  // Overwrites `gradient` [layout.elements()], that of the loss itself; the uses of each part are
  // added up. Where the loss is scaled, the job's first scale is halved, now and for later calls,
  // until the gradient is finite: exponents that are made of this gradient have to fit the steps
  // that follow, whose scale is halved likewise.
  //   parameters [layout.elements()]  in the host's memory, or in shared() memory of the device
  //                                   where processes beside this one compute
  // Errors: as Model::pass().
  Result<MicroBatchResult> compute(std::span<const float> parameters, const Batch& batch,
                                   std::span<float> gradient);

 private:
  Result<MicroBatchResult> compute_once(const float* parameters, const Batch& batch,
                                        std::span<float> gradient);

  const Layout& layout_;
  const std::unique_ptr<GradientMaker> maker_;
  const bool here_;  // the device reads the host's memory
  std::int32_t scale_;
  Array<float> there_;  // the parameters where it does not
};

struct FirstGradient {
  MicroBatchResult result;
  std::vector<float> gradient;  // [layout.elements()]
};

// Of one batch; parameters as above. On a device with arithmetic of its own the same is computed
// three times, the second time beside a queue that is busy: a device that does not repeat itself has
// no place in a job.
// Errors: as Model::pass(); kBadInput  other bits than the first time.
Result<FirstGradient> first_gradient(const Job& job, const Model& model, const Layout& layout,
                                     Device& device, std::span<const float> parameters,
                                     const Batch& batch);

}  // namespace starling::kernels
