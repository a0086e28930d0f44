#pragma once
// A chain is a model that is layers one after the other, over the kernels of one instruction set.

#include <memory>
#include <vector>

#include "kernels/layers/layer.h"
#include "kernels/models/input.h"
#include "kernels/models/model.h"

namespace starling::kernels {

// Errors: kBadInput  there are adapters, and no module that they adapt.
Result<> adapts_some(const Parameters& parameters);

// Makes a model of layers that have declared their tensors in `parameters`.
std::unique_ptr<Model> make_chain(const KernelTable& kernels, bool recompute, Input input,
                                  Parameters parameters,
                                  std::vector<std::unique_ptr<Layer>> layers);

}  // namespace starling::kernels
