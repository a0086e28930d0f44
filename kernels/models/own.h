#pragma once
// An application can bring its own models: `kind = "own"` in a job file's [model].

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/named.h"
#include "kernels/models/model.h"

namespace starling::kernels {

// The registry has these by the model's name. isa: resolved, as of kernel_table().
struct OwnModel {
  std::function<Result<std::unique_ptr<Model>>(const OwnSpec& spec)> make;
};

// Errors: kBadInput  this program has no model of that name.
Result<> check_own_model(const OwnSpec& spec);

// Reads tensors as job files spell them. Errors: kBadInput  a text that is none.
Result<std::vector<TensorSpec>> tensors_of(const std::vector<std::string>& texts);

}  // namespace starling::kernels
