#pragma once
// NetMaker makes gradients of micro-batches on a device: its memory, and the pass in order.

#include <memory>
#include <vector>

#include "core/base/result.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/net.h"
#include "kernels/cuda/recorder.h"
#include "kernels/models/gradient_maker.h"
#include "kernels/models/input.h"

namespace starling::kernels::cuda {

// A NetMaker takes batches of exactly `sequences`. With bf16 or fp16 all but vectors, statistics,
// losses and gradients of parameters has 16 bits, and each arrived part of the working parameters
// is rounded once a micro-batch. recompute: only the inputs of layers are kept, and the backward
// pass computes the rest again, with the same bits. Threads: as GradientMaker.
class NetMaker : public GradientMaker {
 public:
  NetMaker(const MakerSpec& spec, CudaDevice& device, std::unique_ptr<Products> products,
           const Input& input, DeviceLayers layers,
           std::shared_ptr<const DeviceFrozen> frozen = nullptr);

  const Input& input() const { return input_; }
  std::int32_t scale() const override { return working().scale; }

 private:
  Result<MicroBatchResult> pass(const Batch& batch) override;
  bool gives_ahead() const override { return true; }
  void take_batch_memory(Device& device);
  // frozen: null where all is trained.
  void take_memory(Device& device, const std::vector<TensorSpec>* frozen);
  void load(const Batch& batch);
  // Returns false if a part did not come.
  bool forward();
  void backward();
  bool open(PartId part);
  void clear_padding(PartId part);
  const void* input_of(std::size_t layer) const;

  const CudaDevice& device_;
  const Input input_;
  const bool recompute_;
  const std::uint32_t sequences_;
  const DeviceLayers layers_;
  const std::shared_ptr<const DeviceFrozen> frozen_;  // null: all is trained
  const std::uint32_t rank_;                          // of adapters; 0: none
  const std::unique_ptr<Products> products_;
  Pass pass_;
  Recorder recorder_;
  TokenOrder order_;

  // These hold the batch, pinned and as the device reads it.
  Array<std::int32_t> tokens_here_, targets_here_, tokens_, targets_;
  Array<std::uint32_t> token_rows_here_, token_rows_;
  Array<float> x_here_, x_;
  Array<float> scale_here_, scale_;
  Array<std::uint16_t> x_rounded_;
  Array<double> loss_;  // pinned
  // memory_ has all else, in one piece.
  Array<std::byte> memory_;
  std::vector<void*> outs_, saved_;           // by layer
  void* d_[2] = {nullptr, nullptr};           // gradients of rows, in turns
  float* gradients_[2] = {nullptr, nullptr};  // of parts, in turns: one is read, one is made
};

}  // namespace starling::kernels::cuda
