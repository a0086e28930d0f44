#pragma once
// A compute thread has a GradientMaker: gradients of micro-batches on a device, part by part.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "kernels/device/device.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"
#include "kernels/models/model.h"

namespace starling::kernels {

// A pass calls these, on its thread.
struct PassHooks {
  // Called before a part is read; returns when it is there. False: it will
  // not come. Then the pass ends with an error and gives nothing more.
  std::function<bool(PartId)> before_reading = [](PartId) { return true; };
  // Called before each pass of a gradient that several passes make. False: the gradient is no longer wanted. Then as above.
  std::function<bool()> go_on = [] { return true; };
  // Called before each use's gradient is taken, with how much of the passes is
  // over, 0 to 1, if the forward pass takes a third and the rest goes by elements.
  std::function<void(double)> before_taking = [](double) {};
  // Takes what use `use` gives of the part's gradient, [elements of the
  // part] in the device's memory, padding is zero; the maker's queue()
  // has been asked to write it, and it stays until this returns.
  std::function<void(PartId, std::uint32_t use, const float* gradient)> take;
};

// A GradientMaker has activations, memory for the gradient of the largest part,
// and a queue. Threads: one at a time; one maker for each compute thread.
class GradientMaker {
 public:
  virtual ~GradientMaker() = default;

  // Makes the gradient of the batch's mean loss, part by part, each use of each part once.
  // Errors: as Model::pass(), nothing was taken then. kUnavailable  a part did not come.
  Result<MicroBatchResult> make(const Working& working, const Batch& batch, const PassHooks& hooks);
  // Makes it into `adding`, each use after hooks.take, if set; finish() is left to the caller.
  Result<MicroBatchResult> make(const Working& working, const Batch& batch,
                                Accumulators::Adding& adding, PassHooks hooks = {});
  // Computes what a batch of held-out data comes to, with all parameters there; takes no gradient.
  // Default: a pass whose gradient is dropped. Errors: as Model::pass().
  virtual Result<MicroBatchResult> evaluate(const Working& working, const Batch& batch);
  // Makes the gradient of the next batch count as zero.
  void drop_gradient() { drop_ = true; }
  // True: the gradient that PassHooks::take gets stays as it is until the next call of take has returned.
  virtual bool gives_ahead() const { return false; }
  // The last make() handed over the gradient of the loss times 2^scale().
  virtual std::int32_t scale() const { return 0; }
  Queue& queue() { return queue_; }
  // Returns how long the last make() took to hand over what it had made.
  std::chrono::nanoseconds taking_took() const { return taking_took_; }

 protected:
  // Borrows `layout` and `device`, which must outlive it.
  GradientMaker(const Layout& layout, Device& device);
  // Borrows the queue, too.
  GradientMaker(const Layout& layout, Queue& queue);

  const Layout& layout() const { return layout_; }
  // Returns the numbers of the batch at hand.
  const Working& working() const { return working_; }

  // Makes the gradient; calls await() before it reads a part, give() for each use of each part.
  // Once await() says that a part will not come, it may compute anything. Errors: as Model::pass().
  virtual Result<MicroBatchResult> pass(const Batch& batch) = 0;
  // Returns false if the part will not come.
  bool await(PartId part);
  bool lacking() const { return lacking_; }
  // Returns false if the gradient is no longer wanted, as if a part had not come.
  bool goes_on() {
    lacking_ = lacking_ || !hooks_->go_on();
    return !lacking_;
  }
  // Tells how much of the passes is over, where several make a gradient (PassHooks::before_taking).
  void passed(double part) { hooks_->before_taking(part); }
  // Hands over [elements of the part] in the device's memory, which queue()
  // has been asked to write; it may be written again when give() returns.
  void give(PartId part, std::uint32_t use, float* gradient);

 private:
  void count_elements();

  const Layout& layout_;
  std::uint64_t elements_ = 0;              // of a pass's gradients, each use of a part counts
  const std::unique_ptr<Queue> own_queue_;  // null: it is another maker's
  Queue& queue_;
  // These are of the batch at hand.
  Working working_;
  const PassHooks* hooks_ = nullptr;
  bool lacking_ = false;              // a part did not come
  std::uint64_t elements_given_ = 0;  // each use of a part counts
  std::chrono::nanoseconds taking_took_{};
  bool drop_ = false;
};

// MakerSpec tells a device that has models of its own about one.
struct MakerSpec {
  const ModelSpec& model;
  const Layout& layout;
  Precision precision = Precision::kFp32;
  bool recompute = false;
  std::uint32_t sequences = 1;  // of each batch
  // What training leaves as it is: Model::frozen(), null where there is nothing, and frozen_values().
  const std::vector<TensorSpec>* frozen = nullptr;
  std::shared_ptr<const FrozenTensors> frozen_values = nullptr;
};
// Makes the device's own maker, or the host's, of batches of so many sequences; of local steps, if the job has some.
// Borrows all but the numbers.
std::unique_ptr<GradientMaker> make_gradient_maker(const Job& job, const Model& model,
                                                   const Layout& layout, Device& device,
                                                   std::uint32_t sequences);

}  // namespace starling::kernels
