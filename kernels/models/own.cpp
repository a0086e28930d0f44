#include "kernels/models/own.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/exception.h"
#include "kernels/models/kinds.h"

namespace starling::kernels {
namespace {

Error not_here(const OwnSpec& spec) {
  return Error(Code::kBadInput, "this program has no model \"" + spec.name + "\", it has " +
                                    Named<OwnModel>::known() + "; [model].name");
}

class Elsewhere : public Model {
 public:
  Elsewhere(OwnSpec spec, std::vector<TensorSpec> tensors)
      : spec_(std::move(spec)), tensors_(std::move(tensors)) {}
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  Result<> initialise(std::uint64_t, const Layout&, std::span<float>) const override {
    return not_here(spec_);
  }
  Result<MicroBatchResult> forward_backward(std::span<const float>, const Batch&, Workspace&,
                                            std::span<float>) const override {
    return not_here(spec_);
  }

 private:
  const OwnSpec spec_;
  const std::vector<TensorSpec> tensors_;
};

}  // namespace

Result<> check_own_model(const OwnSpec& spec) {
  if (Named<OwnModel>::find(spec.name) == nullptr) return not_here(spec);
  return ok();
}

Result<std::vector<TensorSpec>> tensors_of(const std::vector<std::string>& texts) {
  std::vector<TensorSpec> tensors;
  for (const std::string& text : texts) {
    auto tensor = parse_tensor(text);
    if (!tensor)
      return Error(Code::kBadInput,
                   "tensors must be texts like \"encoder.weight:64x128\"; [model]");
    tensors.push_back(std::move(*tensor));
  }
  return tensors;
}

// Makes the application's model, or, where it is not here but the job lists its tensors,
// one that has tensors and cannot compute: enough for coordinators. Errors: kBadInput
// neither; other tensors than the job's; an error or exception of the application's.
MadeModel make(const OwnSpec& spec, const KernelTable&, bool) try {
  STARLING_TRY(tensors, tensors_of(spec.tensors));
  const auto* own = Named<OwnModel>::find(spec.name);
  if (own == nullptr && tensors.empty()) return not_here(spec);
  if (own == nullptr) return std::unique_ptr<Model>(new Elsewhere(spec, std::move(tensors)));
  STARLING_TRY(model, own->make(spec));
  if (!model || model->tensors().empty())
    return Error(Code::kBadInput, "the model \"" + spec.name + "\" has no tensors; [model].name");
  if (tensors.empty()) return std::move(model);
  const auto& made = model->tensors();
  for (std::size_t i = 0; i < std::max(made.size(), tensors.size()); ++i) {
    const std::string here = i < made.size() ? tensor_text(made[i]) : "none";
    const std::string there = i < tensors.size() ? tensor_text(tensors[i]) : "none";
    if (here != there)
      return Error(Code::kBadInput, "the model's tensor " + std::to_string(i) + " is " + here +
                                        ", the job says " + there + "; [model].tensors");
  }
  return std::move(model);
} catch (...) {  // the application's
  return error_of_exception("making the model \"" + spec.name + "\"");
}

}  // namespace starling::kernels
