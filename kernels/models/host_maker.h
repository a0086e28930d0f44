#pragma once
// Gradients of micro-batches for a device, computed by the host with any Model.

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/layout.h"
#include "kernels/device/array.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"
#include "kernels/models/model.h"

namespace starling::kernels {

// What is called in a pass, on its thread.
struct PassHooks {
  // Before a part is read; returns when it is there. False: it will not come. Then the pass goes on
  // with zeros to its end, adds nothing more, and is an error.
  std::function<bool(PartId)> before_reading = [](PartId) { return true; };
  // Before each use's gradient is added, with how much of the passes is over, 0 to 1, if the
  // forward pass takes a third and the rest goes by elements.
  std::function<void(double)> before_adding = [](double) {};
};

// What a compute thread has: activations, memory for the gradient of the largest part, and a queue.
// Where the host cannot read the device's memory, the working parameters are copied out and the
// gradient is copied in, part by part. Threads: one at a time; one maker for each compute thread.
// Borrows `model`, `layout` and `device`, which must outlive it.
class HostMaker : private PartSource, private GradientSink {
 public:
  // For batches of exactly `sequences`.
  HostMaker(const Model& model, const Layout& layout, Device& device, std::uint32_t sequences);

  // Adds the gradient of the batch's mean loss, part by part; finish() is left to the caller.
  // Errors: as Model::pass(), nothing was added then. kUnavailable  a part did not come.
  Result<MicroBatchResult> make(const Working& working, const Batch& batch,
                                Accumulators::Adding& adding, const PassHooks& hooks = {});
  // The gradient of the next batch is as if it were zero.
  void drop_gradient() { drop_ = true; }
  Queue& queue() { return *queue_; }
  // How long the last make() took to add what it had made.
  std::chrono::nanoseconds adding_took() const { return adding_took_; }

 private:
  const float* acquire(PartId part) override;
  void release(PartId) override {}
  float* begin(PartId part, std::uint32_t use) override;
  void end(PartId part, std::uint32_t use) override;

  const Model& model_;
  const Layout& layout_;
  const bool here_;             // the host reads and writes the device's memory
  std::uint64_t elements_ = 0;  // of a pass's gradients, each use of a part counts
  const std::unique_ptr<Queue> queue_;
  const std::unique_ptr<Workspace> workspace_;
  // Of the part at hand; pinned.
  Array<float> gradient_;
  Array<float> parameters_;  // empty: the host reads those of the device
  Array<float> there_;       // the gradient on the device; empty: the device reads that of the host
  // Of the batch at hand.
  Working working_;
  Accumulators::Adding* adding_ = nullptr;
  const PassHooks* hooks_ = nullptr;
  bool lacking_ = false;             // a part did not come
  std::vector<float> zeros_;         // of the largest part; empty: never lacking
  std::uint64_t elements_made_ = 0;  // of gradients, each use of a part counts
  std::chrono::nanoseconds adding_took_{};
  bool drop_ = false;
};

}  // namespace starling::kernels
