#pragma once
// Gradients of micro-batches for a device, computed by the host with any Model.

#include <memory>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/layout.h"
#include "kernels/device/array.h"
#include "kernels/grid/state.h"
#include "kernels/models/model.h"

namespace starling::kernels {

// What a compute thread has: activations, one gradient and a queue. Where the host cannot read the
// device's memory, the working parameters are copied out for each micro-batch and the gradient is
// copied in. Threads: one at a time; one maker for each compute thread. Borrows `model`, `layout`
// and `device`, which must outlive it.
class HostMaker {
 public:
  // For batches of exactly `sequences`.
  HostMaker(const Model& model, const Layout& layout, Device& device, std::uint32_t sequences);

  // The gradient of the batch's mean loss. Errors: as Model::forward_backward().
  Result<MicroBatchResult> make(const Working& working, const Batch& batch);

  // Of the last batch, in the device's memory: fp32, [layout.elements()], padding zero.
  const float* gradient() const;
  // As if it were zero.
  void drop_gradient();
  Queue& queue() { return *queue_; }

 private:
  const Model& model_;
  const bool here_;  // the host reads and writes the device's memory
  const std::unique_ptr<Queue> queue_;
  const std::unique_ptr<Workspace> workspace_;
  std::vector<float> parameters_;  // empty: those of the device
  std::vector<float> gradient_;
  Array<float> there_;  // the gradient on the device; empty: that of the host
};

}  // namespace starling::kernels
