#include "actors/pretrained.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "core/formats/pretrained.h"
#include "core/job/models/gpt_config.h"

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

const PretrainedWeights::Tensor* find(const PretrainedWeights& weights, const std::string& name) {
  for (const std::string& called : {std::string(kPrefix) + name, name})
    if (const auto it = weights.tensors().find(called); it != weights.tensors().end())
      return &it->second;
  return nullptr;
}

// Whether a tensor of files can be one of the model's. `config`: of the files; none: nobody says.
Result<> fits(const TensorSpec& spec, const SafetensorsEntry& entry,
              const std::optional<Gpt2Config>& config) {
  if (entry.dtype != Dtype::kF32 && entry.dtype != Dtype::kBf16 && entry.dtype != Dtype::kF16)
    return bad_input("tensor " + entry.name + " is " + std::string(dtype_name(entry.dtype)) +
                     ", expected F32, BF16 or F16");
  auto shape = entry.shape;
  const bool longer =
      spec.name == kPositions && shape.size() == spec.shape.size() && shape[0] > spec.shape[0];
  if (longer && (!config || shape[0] == config->positions)) shape[0] = spec.shape[0];
  if (shape == spec.shape) return ok();
  const bool turned = shape.size() == 2 && std::vector{shape[1], shape[0]} == spec.shape;
  return bad_input("tensor " + spec.name + " is " + shape_text(entry.shape) + ", expected " +
                   shape_text(spec.shape) + (turned ? ", its transpose" : ""));
}

// Whether the config.json of weights, where there is one, says the same model. The number of heads shows in no tensor.
Result<std::optional<Gpt2Config>> config_of(const GptSpec& spec) {
  if (!has_gpt2_config(spec.from)) return std::optional<Gpt2Config>();
  STARLING_TRY(config, read_gpt2_config(spec.from));
  const struct {
    const char* key;
    std::uint32_t job, there;
  } fields[] = {{"layers", spec.layers, config.layers},
                {"heads", spec.heads, config.heads},
                {"width", spec.width, config.width},
                {"vocabulary", spec.vocabulary, config.vocabulary}};
  for (const auto& [key, job, there] : fields)
    if (job != there)
      return bad_input(std::string(key) + " is " + std::to_string(job) + ", and " +
                       std::to_string(there) + " in the config.json of the weights; " + spec.from);
  if (spec.context > config.positions)
    return bad_input("context is " + std::to_string(spec.context) + ", and the weights have " +
                     std::to_string(config.positions) + " positions; " + spec.from);
  return std::optional(config);
}

// Whether a head that is there is the embedding, to which it is tied here.
Result<> check_head(const PretrainedWeights& weights) {
  const auto* const head = find(weights, "lm_head.weight");
  const auto* const embedding = find(weights, "wte.weight");
  if (head == nullptr) return ok();
  STARLING_CHECK(embedding != nullptr);
  bool same = head->entry->shape == embedding->entry->shape;
  constexpr std::uint64_t kAtOnce = 1u << 18;
  std::vector<float> of_head, of_embedding;
  for (std::uint64_t at = 0; same && at < head->entry->elements(); at += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, head->entry->elements() - at);
    of_head.resize(count);
    of_embedding.resize(count);
    STARLING_TRY(weights.read(*head, at, of_head));
    STARLING_TRY(weights.read(*embedding, at, of_embedding));
    same = std::memcmp(of_head.data(), of_embedding.data(), count * sizeof(float)) == 0;
  }
  if (same) return ok();
  return bad_input("lm_head.weight is another one than wte.weight, expected a tied head; weights " +
                   weights.path());
}

// Opens weights that are those of a model with these tensors, and no others.
Result<PretrainedWeights> open_weights(const GptSpec& spec,
                                       const std::vector<TensorSpec>& tensors) {
  const std::string& path = spec.from;
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return bad_input("no weights " + path +
                     " here; a worker's --weights says where those of [model].from lie");
  STARLING_TRY(config, config_of(spec));
  STARLING_TRY(weights, PretrainedWeights::open(path));
  for (const TensorSpec& wanted : tensors) {
    const auto* const tensor = find(weights, wanted.name);
    if (tensor == nullptr)
      return bad_input("no tensor " + wanted.name + " is in the weights " + path);
    if (auto fit = fits(wanted, *tensor->entry, config); !fit)
      return std::move(fit).error().in("weights " + path);
  }
  for (const auto& [name, tensor] : weights.tensors()) {
    const std::string own = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
    const bool known = std::ranges::find(tensors, own, &TensorSpec::name) != tensors.end();
    if (known && find(weights, own) != &tensor)
      return bad_input("tensor " + own + " is there twice, with and without \"" +
                       std::string(kPrefix) + "\"; weights " + path);
    if (!known && !is_no_parameter(own))
      return bad_input("has the tensor " + name + ", which the model of [model] has not; weights " +
                       path);
  }
  STARLING_TRY(check_head(weights));
  return weights;
}

class Pretrained : public Model {
 public:
  Pretrained(GptSpec spec, std::unique_ptr<Model> model)
      : spec_(std::move(spec)), model_(std::move(model)) {}

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
      STARLING_TRY(weights->read(*find(*weights, place.spec.name), from - tensor,
                                 parameters.subspan(from - part.first(), to - from)));
    }
    return ok();
  }

 private:
  using Weights = std::shared_ptr<const PretrainedWeights>;

  Result<Weights> opened() const {
    const std::lock_guard lock(opening_);
    if (weights_) return weights_;
    STARLING_TRY(weights, open_weights(spec_, tensors()));
    weights_ = std::make_shared<const PretrainedWeights>(std::move(weights));
    return weights_;
  }

  const GptSpec spec_;
  const std::unique_ptr<Model> model_;
  mutable std::mutex opening_;
  mutable Weights weights_;  // guarded by opening_
};

}  // namespace

std::unique_ptr<kernels::Model> with_weights(const GptSpec& spec,
                                             std::unique_ptr<kernels::Model> model) {
  return std::make_unique<Pretrained>(spec, std::move(model));
}

Result<> check_weights(const Job& job, const std::vector<TensorSpec>& tensors) {
  const auto* const gpt = std::get_if<GptSpec>(&job.model);
  if (gpt == nullptr || gpt->from.empty()) return ok();
  STARLING_TRY(open_weights(*gpt, tensors));
  return ok();
}

}  // namespace starling::actors
