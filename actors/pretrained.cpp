#include "actors/pretrained.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "core/base/mutex.h"
#include "core/job/models/from_weights.h"

namespace starling::actors {
namespace {

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t size : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

using namespace kernels;

// Weights of a family, as its files have them beside the job's.
struct Family {
  std::string from;
  std::string (*published_name)(const std::string& tensor);
  // The tensor of which a shorter context has the first rows, and how many the files should have; empty: none.
  std::string positions;
  std::optional<std::uint64_t> positions_there;
  // The head, where it is no tensor of the model, and the embedding, which it has to be then.
  std::string tied_head, embedding;
  std::function<bool(std::string_view name)> is_no_parameter;
};

std::string with_prefix_gone(const Family& family, const std::string& name) {
  const std::string prefix = family.published_name("");
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

// The spec that the config.json beside the weights describes; none: there is no such file.
// Errors: the job says another one. The number of heads shows in no tensor.
template <class Spec>
Result<std::optional<Spec>> published(const Spec& spec) {
  if (!PublishedConfig::is_beside(spec.from)) return std::optional<Spec>();
  STARLING_TRY(config, PublishedConfig::read(spec.from));
  auto there = published_as<Spec>(config);
  if (!there) return std::move(there).error().in("the config.json of the weights " + spec.from);
  if (const auto misfit = spec.misfit(there.value()))
    return bad_input("the weights are another model's: " + misfit->why + "; " + spec.from);
  return std::optional(std::move(there).value());
}

Result<Family> family_of(const GptSpec& spec) {
  STARLING_TRY(there, published(spec));
  Family family{spec.from,
                &GptSpec::published_name,
                "wpe.weight",
                {},
                "lm_head.weight",
                "wte.weight",
                [spec](std::string_view name) { return is_spare(spec, name); }};
  if (there) family.positions_there = there->context;
  return family;
}

Result<Family> family_of(const LlamaSpec& spec) {
  STARLING_TRY(there, published(spec));
  static_cast<void>(there);
  return Family{spec.from,
                &LlamaSpec::published_name,
                "",
                {},
                spec.tied_embeddings ? "lm_head.weight" : "",
                "embed_tokens.weight",
                [spec](std::string_view name) { return is_spare(spec, name); }};
}

Result<Family> family_of_kind(const ModelSpec& spec) {
  return std::visit(
      [](const auto& kind) -> Result<Family> {
        if constexpr (requires { kind.from; })
          return family_of(kind);
        else
          return Error(Code::kInternal, "a kind of model that begins with no weights of others");
      },
      spec);
}

const PretrainedWeights::Tensor* find(const Family& family, const PretrainedWeights& weights,
                                      const std::string& name) {
  for (const std::string& called : {family.published_name(name), name})
    if (const auto it = weights.tensors().find(called); it != weights.tensors().end())
      return &it->second;
  return nullptr;
}

// Whether a tensor of files can be one of the model's.
Result<> fits(const Family& family, const TensorSpec& spec, const SafetensorsEntry& entry) {
  if (!is_float(entry.dtype))
    return bad_input("tensor " + entry.name + " is " + std::string(dtype_name(entry.dtype)) +
                     ", expected F32, BF16 or F16");
  auto shape = entry.shape;
  const bool longer = spec.name == family.positions && shape.size() == spec.shape.size() &&
                      shape[0] > spec.shape[0];
  if (longer && shape[0] == family.positions_there.value_or(shape[0])) shape[0] = spec.shape[0];
  if (shape == spec.shape) return ok();
  const bool turned = shape.size() == 2 && std::vector{shape[1], shape[0]} == spec.shape;
  return bad_input("tensor " + spec.name + " is " + shape_text(entry.shape) + ", expected " +
                   shape_text(spec.shape) + (turned ? ", its transpose" : ""));
}

// Whether a head that is there is the embedding, to which it is tied here.
Result<> check_head(const Family& family, const PretrainedWeights& weights) {
  if (family.tied_head.empty()) return ok();
  const auto* const head = find(family, weights, family.tied_head);
  const auto* const embedding = find(family, weights, family.embedding);
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
  return bad_input(family.tied_head + " is another one than " + family.embedding +
                   ", expected a tied head; weights " + weights.path());
}

struct OpenWeights {
  Family family;
  PretrainedWeights weights;
};

// Opens weights that are those of a model with these tensors, and no others.
Result<OpenWeights> open_weights(const ModelSpec& spec, const std::vector<TensorSpec>& tensors) {
  const std::string path = weights_of(spec);
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return bad_input(
        "no weights " + path +
        " here, where [model].from has them; --weights of a worker and --base of export "
        "say where they lie");
  STARLING_TRY(family, family_of_kind(spec));
  STARLING_TRY(weights, PretrainedWeights::open(path));
  for (const TensorSpec& wanted : tensors) {
    const auto* const tensor = find(family, weights, wanted.name);
    if (tensor == nullptr)
      return bad_input("no tensor " + wanted.name + " is in the weights " + path);
    if (auto fit = fits(family, wanted, *tensor->entry); !fit)
      return std::move(fit).error().in("weights " + path);
  }
  for (const auto& [name, tensor] : weights.tensors()) {
    const std::string own = with_prefix_gone(family, name);
    const bool known = std::ranges::find(tensors, own, &TensorSpec::name) != tensors.end();
    if (known && find(family, weights, own) != &tensor)
      return bad_input("tensor " + own + " is there twice, with and without \"" +
                       family.published_name("") + "\"; weights " + path);
    if (!known && !family.is_no_parameter(own))
      return bad_input("has the tensor " + name + ", which the model of [model] has not; weights " +
                       path);
  }
  STARLING_TRY(check_head(family, weights));
  return OpenWeights{std::move(family), std::move(weights)};
}

class Pretrained : public Model {
 public:
  Pretrained(ModelSpec spec, std::unique_ptr<Model> model)
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
    STARLING_TRY(opened, open());
    const Part& part = layout.parts()[p];
    STARLING_CHECK(parameters.size() == part.elements());
    std::fill(parameters.begin(), parameters.end(), 0.0f);  // what lies between tensors
    for (const TensorPlace& place : layout.tensors()) {
      const std::uint64_t tensor = std::uint64_t{place.first_block} * kBlock;
      const std::uint64_t from = std::max(tensor, part.first());
      const std::uint64_t to =
          std::min(tensor + place.spec.elements(), part.first() + part.elements());
      if (from >= to) continue;
      const auto* const there = find(opened->family, opened->weights, place.spec.name);
      STARLING_TRY(opened->weights.read(*there, from - tensor,
                                        parameters.subspan(from - part.first(), to - from)));
    }
    return ok();
  }

 private:
  using Opened = std::shared_ptr<const OpenWeights>;

  Result<Opened> open() const {
    const MutexLock lock(opening_);
    if (opened_) return opened_;
    STARLING_TRY(weights, open_weights(spec_, tensors()));
    opened_ = std::make_shared<const OpenWeights>(std::move(weights));
    return opened_;
  }

  const ModelSpec spec_;
  const std::unique_ptr<Model> model_;
  mutable Mutex opening_;
  mutable Opened opened_ STARLING_GUARDED_BY(opening_);
};

}  // namespace

std::unique_ptr<kernels::Model> with_weights(const ModelSpec& spec,
                                             std::unique_ptr<kernels::Model> model) {
  return std::make_unique<Pretrained>(spec, std::move(model));
}

Result<FittedWeights> fitted_weights(const ModelSpec& spec,
                                     const std::vector<TensorSpec>& tensors) {
  STARLING_TRY(opened, open_weights(spec, tensors));
  FittedWeights fitted{std::move(opened.weights), {}};
  for (const TensorSpec& tensor : tensors)
    fitted.tensors.emplace_back(&tensor, find(opened.family, fitted.weights, tensor.name));
  return fitted;
}

Result<> check_weights(const Job& job, const kernels::Model& model) {
  if (weights_of(job.model).empty()) return ok();
  STARLING_TRY(open_weights(job.model, lora_of(job.model).on() ? model.frozen() : model.tensors()));
  return ok();
}

Result<Digest> digest_of(const PretrainedWeights& weights, const ModelSpec& spec) {
  return std::visit(
      [&](const auto& kind) -> Result<Digest> {
        if constexpr (requires { kind.from; })
          return digest_of_weights(weights, kind);
        else
          return Error(Code::kInternal, "a kind of model that begins with no weights of others");
      },
      spec);
}

std::string prefix_of(const ModelSpec& spec) {
  return std::visit(
      [](const auto& kind) -> std::string {
        if constexpr (requires { kind.published_name(""); })
          return kind.published_name("");
        else
          return {};
      },
      spec);
}

}  // namespace starling::actors
