#pragma once
// Optimizers as functions over spans: one element's result depends on that element alone, and every
// operation is a correctly rounded IEEE one in a fixed order. So the bits are the same however the
// spans are cut, on every CPU, on the owner of a segment and on its replicas.

#include <cstdint>
#include <span>

#include "core/job/job.h"

namespace starling::kernels {

// What one step has for all elements alike.
struct StepScale {
  double rate = 0;        // learning rate of the step
  double clip_scale = 1;  // clip_factor() of the gradient's global norm
  std::uint64_t t = 1;    // 1-based number of the update, for Adam's bias correction
};

// min(1, clip / (norm + 1e-6)); 1 if clip is 0, which means no clipping.
double clip_factor(double norm, double clip);

// base^exponent in twice a double's precision, rounded once: the same bits whatever mathematical
// library a machine has. base is in [0, 1].
double power(double base, std::uint64_t exponent);

// Arrays of moments that the optimizer keeps per parameter: 2 (Adam, AdamW: m, v) or 1 (SGD: buf).
// All start at zero.
unsigned moments(OptimizerKind kind);

// `gradient` is before clipping. `decay`: the tensor has two or more dimensions. All spans of a
// call have the same length; none may overlap another. kAdam takes spec.weight_decay as zero.
void adamw(const OptimizerSpec& spec, const StepScale& scale, bool decay,
           std::span<const float> gradient, std::span<float> w, std::span<float> m,
           std::span<float> v);
void adam(const OptimizerSpec& spec, const StepScale& scale, std::span<const float> gradient,
          std::span<float> w, std::span<float> m, std::span<float> v);
// Decay is coupled (added to the clipped gradient) and not clipped.
void sgd(const OptimizerSpec& spec, const StepScale& scale, bool decay,
         std::span<const float> gradient, std::span<float> w, std::span<float> buf);

// The one that spec.kind names. `second` is not touched if moments(spec.kind) is 1 (it may be
// empty).
void update(const OptimizerSpec& spec, const StepScale& scale, bool decay,
            std::span<const float> gradient, std::span<float> w, std::span<float> first,
            std::span<float> second);

}  // namespace starling::kernels
