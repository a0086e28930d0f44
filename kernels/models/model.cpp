#include "kernels/models/model.h"

#include "core/base/check.h"
#include "kernels/models/kinds.h"

namespace starling::kernels {

Result<> in_range(const char* key, std::uint64_t value, std::uint64_t most) {
  if (value >= 1 && value <= most) return ok();
  return Error(Code::kBadInput, std::string(key) + " is " + std::to_string(value) +
                                    "; expected 1 to " + std::to_string(most) + "; [model]");
}

MadeModel make(const PythonSpec&, const KernelTable&, bool) {
  return Error(Code::kInternal, "kernels::make_model() was asked for a script's model");
}

MadeModel make_model(const ModelSpec& spec, const std::string& isa, bool recompute) {
  STARLING_TRY(kernels, kernel_table(isa));
  return make_model(spec, *kernels, recompute);
}

Result<std::unique_ptr<Model>> make_model(const ModelSpec& spec, const KernelTable& kernels,
                                          bool recompute) {
  return std::visit([&](const auto& s) { return make(s, kernels, recompute); }, spec);
}

const std::string& Model::isa() const {
  static const std::string portable = "portable";
  return portable;
}

const std::vector<TensorSpec>& Model::frozen() const {
  static const std::vector<TensorSpec> none;
  return none;
}

void Model::set_frozen(std::shared_ptr<const FrozenTensors>) {
  STARLING_CHECK_MSG(false, "the model has no frozen tensors");
}

std::unique_ptr<Workspace> Model::make_workspace(std::uint32_t sequences) const {
  return std::make_unique<Workspace>(1, sequences);
}

Result<> Model::initialise_part(std::uint64_t seed, const Layout& layout, PartId,
                                std::span<float> parameters) const {
  STARLING_CHECK(layout.parts().size() == 1);
  return initialise(seed, layout, parameters);
}

Result<MicroBatchResult> Model::pass(const Layout& layout, PartSource& parameters,
                                     const Batch& batch, Workspace& workspace,
                                     GradientSink& gradient) const {
  if (layout.parts().size() != 1)
    return Error(Code::kBadInput, "the model's tensors are " +
                                      std::to_string(layout.parts().size()) +
                                      " parts (TensorSpec::layer), but it has no pass() that takes "
                                      "them part by part");
  constexpr PartId kAll = 0;
  const std::span<const float> all(parameters.acquire(kAll), layout.elements());
  auto result = forward_backward(all, batch, workspace, {gradient.begin(kAll, 0), all.size()});
  parameters.release(kAll);
  if (result) gradient.end(kAll, 0);
  return result;
}

Result<MicroBatchResult> Model::evaluate(std::span<const float> parameters, const Batch& batch,
                                         Workspace& workspace) const {
  std::vector<float> gradient(parameters.size());
  return forward_backward(parameters, batch, workspace, gradient);
}

}  // namespace starling::kernels
