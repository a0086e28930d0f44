#include "actors/pretrained.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "core/formats/pretrained.h"

namespace starling::actors {
namespace {

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t size : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

using namespace kernels;

// How the tensors of a GPT-2 of transformers are called beside their names here: with or without a prefix.
constexpr std::string_view kPrefix = "transformer.";
// The tensor of which a shorter context has the first rows.
constexpr std::string_view kPositions = "wpe.weight";
// The mask of each attention, which older files have, and the head, which is wte's.
bool is_no_parameter(std::string_view name) {
  return name == "lm_head.weight" || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

class Pretrained : public Model {
 public:
  Pretrained(std::string path, std::unique_ptr<Model> model)
      : path_(std::move(path)), model_(std::move(model)) {}

  const std::vector<TensorSpec>& tensors() const override { return model_->tensors(); }
  const std::string& isa() const override { return model_->isa(); }
  std::unique_ptr<Workspace> make_workspace(std::uint32_t sequences) const override {
    return model_->make_workspace(sequences);
  }
  Result<MicroBatchResult> forward_backward(std::span<const float> parameters, const Batch& batch,
                                            Workspace& workspace,
                                            std::span<float> gradient) const override {
    return model_->forward_backward(parameters, batch, workspace, gradient);
  }
  Result<MicroBatchResult> pass(const Layout& layout, PartSource& parameters, const Batch& batch,
                                Workspace& workspace, GradientSink& gradient) const override {
    return model_->pass(layout, parameters, batch, workspace, gradient);
  }
  Result<MicroBatchResult> evaluate(std::span<const float> parameters, const Batch& batch,
                                    Workspace& workspace) const override {
    return model_->evaluate(parameters, batch, workspace);
  }
  bool evaluates() const override { return model_->evaluates(); }
  bool takes_places() const override { return model_->takes_places(); }

  Result<> initialise(std::uint64_t seed, const Layout& layout,
                      std::span<float> parameters) const override {
    STARLING_CHECK(parameters.size() == layout.elements());
    for (PartId p = 0; p < layout.parts().size(); ++p) {
      const Part& part = layout.parts()[p];
      STARLING_TRY(
          initialise_part(seed, layout, p, parameters.subspan(part.first(), part.elements())));
    }
    return ok();
  }

  Result<> initialise_part(std::uint64_t, const Layout& layout, PartId p,
                           std::span<float> parameters) const override {
    STARLING_TRY(weights, opened());
    const Part& part = layout.parts()[p];
    STARLING_CHECK(parameters.size() == part.elements());
    std::fill(parameters.begin(), parameters.end(), 0.0f);  // what lies between tensors
    for (const TensorPlace& place : layout.tensors()) {
      const std::uint64_t tensor = std::uint64_t{place.first_block} * kBlock;
      const std::uint64_t from = std::max(tensor, part.first());
      const std::uint64_t to =
          std::min(tensor + place.spec.elements(), part.first() + part.elements());
      if (from >= to) continue;
      STARLING_TRY(weights->read(place_of(*weights, place.spec.name), from - tensor,
                                 parameters.subspan(from - part.first(), to - from)));
    }
    return ok();
  }

 private:
  using Weights = std::shared_ptr<const PretrainedWeights>;

  Result<Weights> opened() const {
    const std::lock_guard lock(opening_);
    if (weights_) return weights_;
    std::error_code error;
    if (!std::filesystem::exists(path_, error))
      return bad_input("no weights " + path_ +
                       " here; a worker's --weights says where those of [model].from lie");
    STARLING_TRY(weights, PretrainedWeights::open(path_));
    STARLING_TRY(fits(weights));
    weights_ = std::make_shared<const PretrainedWeights>(std::move(weights));
    return weights_;
  }

  const PretrainedWeights::Tensor* find(const PretrainedWeights& weights,
                                        const std::string& name) const {
    for (const std::string& called : {std::string(kPrefix) + name, name})
      if (const auto it = weights.tensors().find(called); it != weights.tensors().end())
        return &it->second;
    return nullptr;
  }
  const PretrainedWeights::Tensor& place_of(const PretrainedWeights& weights,
                                            const std::string& name) const {
    return *find(weights, name);  // fits() has seen it
  }

  Result<> fits(const PretrainedWeights& weights) const {
    std::size_t used = 0;
    for (const TensorSpec& spec : tensors()) {
      const auto* const tensor = find(weights, spec.name);
      if (tensor == nullptr)
        return bad_input("no tensor " + spec.name + " is in the weights " + path_);
      ++used;
      auto shape = tensor->entry->shape;
      const bool longer =
          spec.name == kPositions && shape.size() == spec.shape.size() && shape[0] > spec.shape[0];
      if (longer) shape[0] = spec.shape[0];
      if (shape == spec.shape) continue;
      const bool turned = shape.size() == 2 && std::vector{shape[1], shape[0]} == spec.shape;
      return bad_input("tensor " + spec.name + " is " + shape_text(tensor->entry->shape) +
                       ", expected " + shape_text(spec.shape) + (turned ? ", its transpose" : "") +
                       "; weights " + path_);
    }
    for (const auto& [name, tensor] : weights.tensors()) {
      const std::string own = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
      const bool known = std::ranges::find(tensors(), own, &TensorSpec::name) != tensors().end();
      if (known && find(weights, own) != &tensor)
        return bad_input("tensor " + own + " is there twice, with and without \"" +
                         std::string(kPrefix) + "\"; weights " + path_);
      if (!known && !is_no_parameter(own))
        return bad_input("has the tensor " + name +
                         ", which the model of [model] has not; weights " + path_);
    }
    STARLING_CHECK(used == tensors().size());
    return ok();
  }

  const std::string path_;
  const std::unique_ptr<Model> model_;
  mutable std::mutex opening_;
  mutable Weights weights_;  // guarded by opening_
};

}  // namespace

std::unique_ptr<kernels::Model> with_weights(const GptSpec& spec,
                                             std::unique_ptr<kernels::Model> model) {
  return std::make_unique<Pretrained>(spec.from, std::move(model));
}

}  // namespace starling::actors
