#pragma once
// Optimizers are functions over spans: one element's result depends on that element alone, and
// every operation is a correctly rounded IEEE one in a fixed order. So the bits are the same
// however the spans are cut, on every CPU, on the owner of a segment and on its replicas.

#include <cstdint>
#include <span>

#include "core/base/result.h"
#include "core/job/groups.h"
#include "core/job/job.h"
#include "kernels/device/jobs.h"

namespace starling::kernels {

// A StepScale is the same for all elements of one step.
struct StepScale {
  double rate = 0;        // learning rate of the step
  double clip_scale = 1;  // clip_factor() of the gradient's global norm
  std::uint64_t t = 1;    // 1-based number of the update, for Adam's bias correction
};

// min(1, clip / (norm + 1e-6)); 1 if clip is 0, which means no clipping.
double clip_factor(double norm, double clip);

// Returns base^exponent in twice a double's precision, rounded once: the
// same bits whatever mathematical library a machine has. base is in [0, 1].
double power(double base, std::uint64_t exponent);

// Returns how many moments the optimizer keeps per parameter: 2 (Adam, AdamW: m, v), 1
// (SGD: buf), or as an application's says (2 where it is not known). All start at zero.
unsigned moments(const OptimizerSpec& spec);

// Errors: kBadInput  the job names an own optimizer or schedule that was not registered, or an invalid one.
Result<> check_optimizers(const Job& job);

// Returns the numbers of a step for tensors of these groups, at most kUpdateGroupsMax,
// computed in double and rounded once; all below are float.
UpdateNumbers update_numbers(const OptimizerSpec& spec, const StepScale& scale,
                             std::span<const UpdateGroup> groups);

// Updates the spans, of tensors of a group; `gradient` is before clipping. Decay is decoupled
// (AdamW), none (Adam), or coupled, added to the clipped gradient and not clipped (SGD).
// All spans of a call have the same length; none may overlap another. With one moment
// `second` is not touched (it may be empty).
void update(const UpdateNumbers& numbers, std::uint32_t group, std::span<const float> gradient,
            std::span<float> w, std::span<float> first, std::span<float> second);
// The same for a tensor of no group. `decay`: it has two or more dimensions.
void update(const OptimizerSpec& spec, const StepScale& scale, bool decay,
            std::span<const float> gradient, std::span<float> w, std::span<float> first,
            std::span<float> second);

}  // namespace starling::kernels
