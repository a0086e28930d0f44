#pragma once
// WholeGradients makes whole gradients of batches, where these are looked at:
// set-up makes fingerprint and first exponents of one, and comparisons read them.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "kernels/device/array.h"
#include "kernels/models/gradient_maker.h"

namespace starling::kernels {

// Threads: one at a time. Borrows what the constructor is given but the job.
class WholeGradients {
 public:
  // Takes batches of exactly `sequences`; uses the job's model, precision and recompute.
  WholeGradients(const Job& job, const Model& model, const Layout& layout, Device& device,
                 std::uint32_t sequences);

  // Overwrites `gradient` [layout.elements()], that of the loss itself; adds up the
  // uses of each part. Where the loss is scaled, the job's first scale is halved,
  // now and for later calls, until the gradient is finite: exponents made of this
  // gradient must fit the steps that follow, whose scale is halved likewise.
  //   parameters [layout.elements()]  in the host's memory
  //   place      where other processes map them from; nothing: they cannot
  // Errors: as Model::pass().
  Result<MicroBatchResult> compute(std::span<const float> parameters, const Batch& batch,
                                   std::span<float> gradient,
                                   const std::optional<SharedPlace>& place = {});

 private:
  Result<MicroBatchResult> compute_once(const Working& working, const Batch& batch,
                                        std::span<float> gradient);

  const Layout& layout_;
  const std::unique_ptr<GradientMaker> maker_;
  const bool here_;  // the device reads the host's memory
  std::int32_t scale_;
  Array<float> there_;  // the device's copy of the parameters, if not here_
};

struct FirstGradient {
  MicroBatchResult result;
  std::vector<float> gradient;  // [layout.elements()]
  std::uint64_t samples = 0;    // of kernels' results that were held to the formulae
  std::uint64_t took_ns = 0;    // the shortest time of those that it was computed in
};

// Computes the first gradient of one batch three times; parameters and place as above. On a
// device with arithmetic of its own the second time is beside a busy queue. On the host a model
// that may keep state (ModelKind::may_keep_state) computes it once.
// Errors: as Model::pass(); kBadInput  the bits differ from the first time: what does not
// repeat itself has no place in a job.
Result<FirstGradient> first_gradient(const Job& job, const Model& model, const Layout& layout,
                                     Device& device, std::span<const float> parameters,
                                     const Batch& batch,
                                     const std::optional<SharedPlace>& place = {});

// Computes that of the job's own model, with its bits. Where the host's kernels
// compute it, samples of their results are held to the formulae (kernels/cpu/kernel_check.h)
// the first of three times; a device with arithmetic of its own, and models without kernels, are
// as above.
// Errors: as above; kBadInput  a kernel's result is not what rounding explains.
Result<FirstGradient> checked_first_gradient(const Job& job, const Model& model,
                                             const Layout& layout, Device& device,
                                             std::span<const float> parameters, const Batch& batch);

// Puts numbers in the place of matrices that are nothing but zeros, as an adapter's second one and other residual branches
// are at first: a product with zeros has the same bits on a device that computes wrongly. The numbers are as large as
// after some steps, and the same on every machine. Returns the numbers of the tensors.
std::vector<std::size_t> draw_zero_matrices(const Layout& layout, std::span<float> parameters);

}  // namespace starling::kernels
