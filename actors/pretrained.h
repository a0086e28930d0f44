#pragma once
// A model whose first parameters are those that others have trained.

#include <memory>
#include <vector>

#include "core/job/job.h"
#include "kernels/models/model.h"

namespace starling::actors {

// Computes as `model` does, which is one of `spec` and has weights_of(spec). Its parameters of version 0 are read
// from there (PretrainedWeights) once they are asked for, whatever the seed. Errors of initialise() and initialise_part():
// kBadInput  a tensor is missing, one is there that the model has not, a shape is another one, or as
// PretrainedWeights has them.
std::unique_ptr<kernels::Model> with_weights(const ModelSpec& spec,
                                             std::unique_ptr<kernels::Model> model);

// Whether the weights that the job begins with, if any, are there and fit a model of these tensors; reads headers
// and a head of its own. Errors: as above.
Result<> check_weights(const Job& job, const std::vector<TensorSpec>& tensors);

}  // namespace starling::actors
