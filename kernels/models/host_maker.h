#pragma once
// HostMaker makes gradients of micro-batches for a device on the host, with any Model.

#include <memory>
#include <optional>
#include <vector>

#include "kernels/device/array.h"
#include "kernels/models/gradient_maker.h"

namespace starling::kernels {

// Where the host cannot read the device's memory, HostMaker copies the working
// parameters out and the gradient in, part by part. Where a part does not
// come, the pass goes on with zeros. Borrows `model`, which must outlive it.
class HostMaker : public GradientMaker, private PartSource, private GradientSink {
 public:
  // Takes batches of exactly `sequences`.
  HostMaker(const Model& model, const Layout& layout, Device& device, std::uint32_t sequences);

  Result<MicroBatchResult> evaluate(const Working& working, const Batch& batch) override;

 private:
  Result<MicroBatchResult> pass(const Batch& batch) override;
  const float* acquire(PartId part) override;
  void release(PartId) override {}
  float* begin(PartId part, std::uint32_t use) override;
  void end(PartId part, std::uint32_t use) override;
  std::optional<SharedPlace> parameters_at(PartId part) const override;
  std::optional<SharedPlace> gradient_at(PartId part, std::uint32_t use) const override;

  const Model& model_;
  const bool here_;  // the host reads and writes the device's memory
  const std::unique_ptr<Workspace> workspace_;
  // These hold the part at hand; pinned.
  Array<float> gradient_;
  Array<float> parameters_;   // empty: the host reads those of the device
  Array<float> there_;        // the gradient on the device; empty: the device reads the host's
  std::vector<float> zeros_;  // for the largest part; empty: never lacking
};

}  // namespace starling::kernels
