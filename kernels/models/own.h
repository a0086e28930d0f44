#pragma once
// Models that an application brings: `kind = "own"` in a job file's [model].

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/named.h"
#include "kernels/models/model.h"

namespace starling::kernels {

// By the model's name. isa: resolved, as of kernel_table().
struct OwnModel {
  std::function<Result<std::unique_ptr<Model>>(const OwnSpec& spec)> make;
};

// Errors: kBadInput  this program has no model of that name.
Result<> check_own_model(const OwnSpec& spec);

// Tensors as job files spell them. Errors: kBadInput  a text that is none.
Result<std::vector<TensorSpec>> tensors_of(const std::vector<std::string>& texts);

// The application's, or, where it is not here but the job lists its tensors, one that has tensors
// and cannot compute: enough for coordinators. Errors: kBadInput  neither; other tensors than the
// job's; what the application's reports or throws.
Result<std::unique_ptr<Model>> make_own_model(const OwnSpec& spec);

}  // namespace starling::kernels
