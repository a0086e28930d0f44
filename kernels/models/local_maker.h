#pragma once
// LocalMaker makes several passes of each micro-batch, each followed by a step of the maker's own weights, and hands over
// the difference of the weights before and after (LocalSpec, core/job/job.h).

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/device/array.h"
#include "kernels/grid/block_groups.h"
#include "kernels/models/gradient_maker.h"

namespace starling::kernels {

// Its batches have `local.steps` times the sequences of the inner maker's; held-out ones have as many as those.
class LocalMaker : public GradientMaker {
 public:
  // Requires job.local.on(). Borrows `layout` and `device`, which must outlive it.
  LocalMaker(std::unique_ptr<GradientMaker> inner, const Job& job, const Layout& layout,
             Device& device);

  // Returns the bytes of the device's memory that a LocalMaker takes beside its inner maker.
  static std::uint64_t bytes(const Job& job, const Layout& layout);

  Result<MicroBatchResult> evaluate(const Working& working, const Batch& batch) override;

 private:
  struct Pass {
    MicroBatchResult result;
    double norm = 0;  // of the gradient, which is in gradient_
  };

  Result<MicroBatchResult> pass(const Batch& batch) override;
  bool gives_ahead() const override { return true; }
  // Returns false if a part did not come.
  bool begin();
  // Makes the gradient of a pass. Halves `scale` where the gradient is too large for halves with it.
  Result<Pass> compute(const Batch& batch, const std::function<void(double)>& over,
                       std::int32_t& scale);
  // Makes local step `number` of the job, which is update `update` of the micro-batch, from 1 on.
  void step(std::uint64_t number, std::uint64_t update, double norm);
  void hand_over();
  const Array<float>& read() const { return rounded_.size() > 0 ? rounded_ : weights_; }

  const std::unique_ptr<GradientMaker> inner_;
  const LocalSpec local_;
  const std::uint64_t schedule_;  // its local steps
  const Precision precision_;
  const BlockGroups blocks_;
  const unsigned moments_;

  Array<float> weights_, first_, second_, gradient_;
  Array<float> rounded_;         // what passes read, where the job rounds it; empty: weights_
  Array<float> zeros_;           // for the further uses of a part; empty: no part has some
  Array<std::uint64_t> norms_;   // pinned: bins of squares
  Array<std::uint32_t> broken_;  // pinned: blocks that are not finite
};

}  // namespace starling::kernels
