#pragma once
// HostMaker makes gradients of micro-batches for a device on the host, with any Model.

#include <memory>
#include <optional>
#include <vector>

#include "kernels/device/array.h"
#include "kernels/models/gradient_maker.h"

namespace starling::kernels {

// Where the host cannot read the device's memory, HostMaker copies the working
// parameters out and the gradient in, part by part; but for a model that goes by places, where
// other processes map them on the device itself, it copies nothing. Where a part does not
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

  // Whether the pass finds the device's own parameters.
  bool at_hand() const { return here_ || (exported_ && working().place); }

  const Model& model_;
  Device& device_;
  const bool here_;  // the host reads and writes the device's memory
  const std::unique_ptr<Workspace> workspace_;
  // These hold the part at hand; pinned, or exported memory of the device.
  Array<float> gradient_;
  const bool exported_;
  Array<float> parameters_;   // empty: none was copied yet
  Array<float> there_;        // the gradient on the device; empty: the device reads gradient_
  std::vector<float> zeros_;  // for the largest part; empty: never lacking
};

}  // namespace starling::kernels
