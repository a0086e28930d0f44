#pragma once
// A model whose first parameters are those that others have trained.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/pretrained.h"
#include "core/job/job.h"
#include "kernels/models/model.h"

namespace starling::actors {

// Computes as `model` does, which is one of `spec` and has weights_of(spec). Its parameters of version 0 are read
// from there (PretrainedWeights) once they are asked for, whatever the seed. Errors of initialise() and initialise_part():
// kBadInput  a tensor is missing, one is there that the model has not, a shape is another one, or as
// PretrainedWeights has them.
std::unique_ptr<kernels::Model> with_weights(const ModelSpec& spec,
                                             std::unique_ptr<kernels::Model> model);

// Weights of others, and each tensor of a model with the one of these that it is.
struct FittedWeights {
  PretrainedWeights weights;
  std::vector<std::pair<const TensorSpec*, const PretrainedWeights::Tensor*>> tensors;
};
// Opens those of the spec for a model of these tensors, which must outlive them. Reads headers and a head of its own.
// Errors: as above.
Result<FittedWeights> fitted_weights(const ModelSpec& spec, const std::vector<TensorSpec>& tensors);

// Whether the weights that the job's model begins with or adapts, if any, are there and fit. Errors: as above.
Result<> check_weights(const Job& job, const kernels::Model& model);

// Returns the digest of weights that LoraSpec::base has. Errors: as PretrainedWeights::digest().
Result<Digest> digest_of(const PretrainedWeights& weights, const ModelSpec& spec);

// Returns the prefix that files may have before the names of tensors of a model with weights of others; empty: none.
std::string prefix_of(const ModelSpec& spec);

}  // namespace starling::actors
