#pragma once
// Adapters become part of the weights that they adapt.

#include <span>

#include "core/job/job.h"
#include "core/job/layout.h"
#include "kernels/cpu/table.h"

namespace starling::kernels {

// Adds scale() B A to each adapted matrix, in place.
//   spec                   has the adapters
//   adapters, of_adapters  the layout of its tensors, and their values, [adapters.elements()]
//   whole, weights         those of without_lora(spec), [whole.elements()]
void merge_adapters(const ModelSpec& spec, const KernelTable& kernels, const Layout& adapters,
                    std::span<const float> of_adapters, const Layout& whole,
                    std::span<float> weights);

}  // namespace starling::kernels
