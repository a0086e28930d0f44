#include "kernels/models/model.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "kernels/layers/dense.h"
#include "kernels/layers/gpt.h"
#include "kernels/models/flat.h"
#include "kernels/models/input.h"
#include "kernels/models/normal.h"
#include "kernels/models/own.h"
#include "kernels/models/synthetic.h"

namespace starling::kernels {
namespace {

class Chain : public Model {
 public:
  Chain(const KernelTable& kernels, bool recompute, Input input, Parameters parameters,
        std::vector<std::unique_ptr<Layer>> layers)
      : kernels_(kernels),
        recompute_(recompute),
        isa_(kernels.isa),
        input_(input),
        parameters_(std::move(parameters)),
        layers_(std::move(layers)),
        layout_(parameters_.specs()) {}

  const std::vector<TensorSpec>& tensors() const override { return parameters_.specs(); }
  const std::string& isa() const override { return isa_; }
  std::unique_ptr<Workspace> make_workspace(std::uint32_t sequences) const override;
  Result<> initialise(std::uint64_t seed, const Layout& layout,
                      std::span<float> parameters) const override;
  Result<> initialise_part(std::uint64_t seed, const Layout& layout, PartId part,
                           std::span<float> parameters) const override;
  Result<MicroBatchResult> forward_backward(std::span<const float> parameters, const Batch& batch,
                                            Workspace& workspace,
                                            std::span<float> gradient) const override;
  Result<MicroBatchResult> pass(const Layout& layout, PartSource& parameters, const Batch& batch,
                                Workspace& workspace, GradientSink& gradient) const override;
  Result<MicroBatchResult> evaluate(std::span<const float> parameters, const Batch& batch,
                                    Workspace& workspace) const override;

 private:
  // Memory is the parts of a workspace, for `sequences`; base may be null to learn the size.
  struct Memory {
    std::vector<float*> outs, saved;  // by layer; with recompute_ all `saved` are one
    float* d[2];                      // gradients of rows, in turns
    float* scratch;
    float* gemm_scratch;
    std::size_t floats;
  };
  Memory carve(float* base, std::size_t sequences) const;
  std::size_t rows(std::size_t sequences) const { return sequences * input_.positions; }
  const float* input_of(std::size_t layer, const Batch& batch, const Memory& memory) const;
  void forward(Pass& pass, const Memory& memory) const;
  void backward(Pass& pass, const Memory& memory) const;
  // gradient: null for the loss alone.
  Result<MicroBatchResult> run(PartSource& parameters, const Batch& batch, Workspace& workspace,
                               GradientSink* gradient) const;

  const KernelTable& kernels_;
  const bool recompute_;
  const std::string isa_;
  const Input input_;
  const Parameters parameters_;
  const std::vector<std::unique_ptr<Layer>> layers_;
  const Layout layout_;
};

Chain::Memory Chain::carve(float* base, std::size_t sequences) const {
  Memory m;
  std::size_t used = 0;
  const auto take = [&](std::size_t floats) {
    float* const p = base ? base + used : nullptr;
    used += aligned_floats(floats);
    return p;
  };
  const std::size_t n = rows(sequences);
  std::size_t scratch = 0, widest = 0, saved = 0;
  for (const auto& layer : layers_) saved = std::max(saved, layer->saved(sequences, n));
  float* const shared = recompute_ ? take(saved) : nullptr;
  for (const auto& layer : layers_) {
    m.outs.push_back(take(n * layer->width()));
    m.saved.push_back(recompute_ ? shared : take(layer->saved(sequences, n)));
    scratch = std::max(scratch, layer->scratch(n));
    widest = std::max(widest, layer->width());
  }
  m.d[0] = take(n * widest);
  m.d[1] = take(n * widest);
  m.scratch = take(scratch);
  m.gemm_scratch = take(kGemmScratch);
  m.floats = used;
  return m;
}

std::unique_ptr<Workspace> Chain::make_workspace(std::uint32_t sequences) const {
  STARLING_CHECK(sequences > 0);
  return std::make_unique<Workspace>(carve(nullptr, sequences).floats, sequences);
}

Result<> Chain::initialise(std::uint64_t seed, const Layout& layout,
                           std::span<float> parameters) const {
  STARLING_CHECK(parameters.size() == layout_.elements());
  for (PartId p = 0; p < layout_.parts().size(); ++p) {
    const Part& part = layout_.parts()[p];
    STARLING_TRY(
        initialise_part(seed, layout, p, parameters.subspan(part.first(), part.elements())));
  }
  return ok();
}

Result<> Chain::initialise_part(std::uint64_t seed, const Layout& layout, PartId p,
                                std::span<float> parameters) const {
  STARLING_CHECK(layout.elements() == layout_.elements());
  const Part& part = layout_.parts()[p];
  STARLING_CHECK(parameters.size() == part.elements());
  std::fill(parameters.begin(), parameters.end(), 0.0f);
  for (std::size_t t = 0; t < layout_.tensors().size(); ++t) {
    const TensorPlace& place = layout_.tensors()[t];
    const std::uint64_t tensor = std::uint64_t{place.first_block} * kBlock;
    const std::uint64_t from = std::max(tensor, part.first());
    const std::uint64_t to =
        std::min(tensor + place.spec.elements(), part.first() + part.elements());
    if (from >= to) continue;
    const auto values = parameters.subspan(from - part.first(), to - from);
    const Initial& initial = parameters_.initials()[t];
    if (initial.deviation > 0) {
      fill_normal(seed, static_cast<std::uint32_t>(t), initial.deviation, from - tensor, values);
    } else {
      std::fill(values.begin(), values.end(), initial.constant);
    }
  }
  return ok();
}

const float* Chain::input_of(std::size_t layer, const Batch& batch, const Memory& memory) const {
  return layer > 0 ? memory.outs[layer - 1] : batch.x.data();
}

void Chain::forward(Pass& pass, const Memory& memory) const {
  for (std::size_t i = 0; i < layers_.size(); ++i)
    layers_[i]->forward(pass, input_of(i, pass.batch, memory), memory.outs[i], memory.saved[i]);
}

void Chain::backward(Pass& pass, const Memory& memory) const {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const float* const d_out = memory.d[(i + 1) % 2];
    float* const d_in = i > 0 ? memory.d[i % 2] : nullptr;
    // Writes `out` once more, with the same bits. What the last layer saved is still there.
    if (recompute_ && i + 1 < layers_.size() && layers_[i]->saved(pass.sequences, pass.rows) > 0)
      layers_[i]->forward(pass, input_of(i, pass.batch, memory), memory.outs[i], memory.saved[i]);
    layers_[i]->backward(pass, input_of(i, pass.batch, memory), memory.outs[i], memory.saved[i],
                         d_out, d_in);
  }
}

Result<MicroBatchResult> Chain::run(PartSource& parameters, const Batch& batch,
                                    Workspace& workspace, GradientSink* gradient) const {
  STARLING_TRY(check(input_, batch, workspace.sequences()));
  const Memory memory = carve(workspace.floats().data(), batch.sequences);
  STARLING_CHECK(memory.floats <= workspace.floats().size());
  Pass pass{.kernels = kernels_,
            .layout = layout_,
            .source = parameters,
            .sink = gradient,
            .batch = batch,
            .rows = rows(batch.sequences),
            .sequences = batch.sequences,
            .gemm_scratch = memory.gemm_scratch,
            .scratch = memory.scratch};
  forward(pass, memory);
  if (gradient != nullptr) backward(pass, memory);
  return MicroBatchResult{pass.loss, pass.rows, std::isfinite(pass.loss)};
}

Result<MicroBatchResult> Chain::pass(const Layout& layout, PartSource& parameters,
                                     const Batch& batch, Workspace& workspace,
                                     GradientSink& gradient) const {
  STARLING_CHECK(layout.elements() == layout_.elements());
  return run(parameters, batch, workspace, &gradient);
}

Result<MicroBatchResult> Chain::forward_backward(std::span<const float> parameters,
                                                 const Batch& batch, Workspace& workspace,
                                                 std::span<float> gradient) const {
  STARLING_CHECK(parameters.size() == layout_.elements());
  FlatSource source(layout_, parameters.data());
  FlatSink sink(layout_, gradient);
  return run(source, batch, workspace, &sink);
}

Result<MicroBatchResult> Chain::evaluate(std::span<const float> parameters, const Batch& batch,
                                         Workspace& workspace) const {
  STARLING_CHECK(parameters.size() == layout_.elements());
  FlatSource source(layout_, parameters.data());
  return run(source, batch, workspace, nullptr);
}

// These limits are far above any model of one process; they keep all sizes below within 64 bits.
constexpr std::uint32_t kDimensionMax = 1u << 24, kContextMax = 1u << 16, kLayersMax = 1024;
constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 36;

Result<> in_range(const char* key, std::uint64_t value, std::uint64_t most) {
  if (value >= 1 && value <= most) return ok();
  return Error(Code::kBadInput, std::string(key) + " is " + std::to_string(value) +
                                    "; expected 1 to " + std::to_string(most) + "; [model]");
}

Result<> check_spec(const GptSpec& spec) {
  STARLING_TRY(in_range("layers", spec.layers, kLayersMax));
  STARLING_TRY(in_range("width", spec.width, kContextMax));
  STARLING_TRY(in_range("heads", spec.heads, spec.width));
  STARLING_TRY(in_range("context", spec.context, kContextMax));
  STARLING_TRY(in_range("vocabulary", spec.vocabulary, kDimensionMax));
  if (spec.width % spec.heads != 0)
    return Error(Code::kBadInput, "width " + std::to_string(spec.width) +
                                      " is not a multiple of heads " + std::to_string(spec.heads) +
                                      "; [model]");
  const std::uint64_t c = spec.width;
  return in_range("number of parameters",
                  (spec.vocabulary + spec.context) * c + spec.layers * 12 * c * c, kElementsMax);
}

Result<> check_spec(const MlpSpec& spec) {
  STARLING_TRY(in_range("number of dense layers", spec.sizes.empty() ? 0 : spec.sizes.size() - 1,
                        kLayersMax));
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < spec.sizes.size(); ++i) {
    STARLING_TRY(in_range("size", spec.sizes[i], kDimensionMax));
    if (i > 0) elements += std::uint64_t{spec.sizes[i - 1]} * spec.sizes[i];
  }
  return in_range("number of parameters", elements, kElementsMax);
}

Result<> check_spec(const SyntheticSpec& spec) {
  if (spec.parameters >= kSyntheticParametersMin && spec.parameters <= kElementsMax) return ok();
  return Error(Code::kBadInput, "parameters is " + std::to_string(spec.parameters) + "; expected " +
                                    std::to_string(kSyntheticParametersMin) + " to " +
                                    std::to_string(kElementsMax) + "; [model]");
}

std::unique_ptr<Model> build(const GptSpec& spec, const KernelTable& kernels, bool recompute) {
  Parameters parameters;
  std::vector<std::unique_ptr<Layer>> layers;
  auto embedding = std::make_unique<Embedding>(spec, parameters);
  const std::size_t wte = embedding->tokens_tensor();
  layers.push_back(std::move(embedding));
  for (std::uint32_t i = 0; i < spec.layers; ++i) {
    layers.push_back(std::make_unique<AttentionBlock>(spec, i, parameters));
    layers.push_back(std::make_unique<FeedForwardBlock>(spec, i, parameters));
  }
  layers.push_back(std::make_unique<LanguageHead>(spec, wte, parameters));
  return std::make_unique<Chain>(kernels, recompute, input_of(spec), std::move(parameters),
                                 std::move(layers));
}

std::unique_ptr<Model> build(const MlpSpec& spec, const KernelTable& kernels, bool recompute) {
  Parameters parameters;
  std::vector<std::unique_ptr<Layer>> layers;
  const std::size_t dense = spec.sizes.size() - 1;
  for (std::uint32_t i = 0; i < dense; ++i)
    layers.push_back(std::make_unique<Dense>(spec.sizes[i], spec.sizes[i + 1], i,
                                             /*relu=*/i + 1 < dense, parameters));
  layers.push_back(std::make_unique<ClassifierLoss>(spec.sizes.back()));
  return std::make_unique<Chain>(kernels, recompute, input_of(spec), std::move(parameters),
                                 std::move(layers));
}

std::unique_ptr<Model> build(const SyntheticSpec& spec, const KernelTable&, bool) {
  return make_synthetic(spec);
}

template <class Spec>
Result<std::unique_ptr<Model>> make(const Spec& spec, const KernelTable& kernels, bool recompute) {
  STARLING_TRY(check_spec(spec));
  return build(spec, kernels, recompute);
}

Result<std::unique_ptr<Model>> make(const OwnSpec& spec, const KernelTable&, bool) {
  return make_own_model(spec);
}

Result<std::unique_ptr<Model>> make(const PythonSpec&, const KernelTable&, bool) {
  return Error(Code::kInternal, "kernels::make_model() was asked for a script's model");
}

}  // namespace

Result<std::unique_ptr<Model>> make_model(const ModelSpec& spec, const std::string& isa,
                                          bool recompute) {
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
