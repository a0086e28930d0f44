#include "kernels/models/chain.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "kernels/models/flat.h"
#include "kernels/models/normal.h"

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
        layout_(parameters_.specs()) {
    for (const TensorSpec& frozen : parameters_.frozen()) {
      const auto trained =
          std::ranges::find(layout_.tensors(), frozen.layer,
                            [](const TensorPlace& place) { return place.spec.layer; });
      frozen_parts_.push_back(
          trained == layout_.tensors().end() ? std::nullopt : std::optional(trained->first_part));
    }
  }

  const std::vector<TensorSpec>& tensors() const override { return parameters_.specs(); }
  const std::vector<TensorSpec>& frozen() const override { return parameters_.frozen(); }
  void set_frozen(std::shared_ptr<const FrozenTensors> values) override {
    STARLING_CHECK(!frozen().empty());
    frozen_ = std::move(values);
  }
  std::shared_ptr<const FrozenTensors> frozen_values() const override { return frozen_; }
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
  bool evaluates() const override { return true; }

 private:
  // Memory is the parts of a workspace, for `sequences`; base may be null to learn the size.
  struct Memory {
    std::vector<float*> outs, saved;  // by layer; with recompute_ all `saved` are one
    float* d[2];                      // gradients of rows, in turns
    float* scratch;
    float* gemm_scratch;
    Frozen frozen;
    std::size_t floats;
  };
  void carve_frozen(Memory& memory, std::size_t rows,
                    const std::function<float*(std::size_t floats)>& take) const;
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
  std::vector<std::optional<PartId>> frozen_parts_;
  std::shared_ptr<const FrozenTensors> frozen_;
};

// In `memory`, what frozen tensors and adapters need beside the layers' own.
void Chain::carve_frozen(Memory& memory, std::size_t rows,
                         const std::function<float*(std::size_t floats)>& take) const {
  if (frozen().empty()) return;
  std::size_t widest = 0, matrix = 0;
  for (const TensorSpec& spec : frozen()) {
    if (spec.shape.size() == 1)
      widest = std::max<std::size_t>(widest, spec.elements());
    else
      matrix = std::max<std::size_t>(
          matrix, spec.by_rows ? frozen_rows_at_once(spec) * spec.shape[1] : spec.elements());
  }
  memory.frozen = {.values = frozen_.get(), .specs = &frozen(), .parts = &frozen_parts_};
  memory.frozen.room = take(matrix);
  memory.frozen.unwanted = take(2 * aligned_floats(widest));
  memory.frozen.low = take(rows * parameters_.lora().rank);
  memory.frozen.d_low = take(rows * parameters_.lora().rank);
}

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
  carve_frozen(m, n, take);
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
  if (!frozen().empty()) {
    if (frozen_ == nullptr)
      return Error(Code::kBadInput, "the weights that are adapted were not given to the model");
    STARLING_TRY(frozen_->intact());
  }
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
            .scratch = memory.scratch,
            .frozen = memory.frozen};
  forward(pass, memory);
  if (gradient != nullptr) backward(pass, memory);
  // A result counts only if no process has changed the weights while the pass read them.
  if (frozen_ != nullptr) {
    STARLING_TRY(frozen_->intact());
  }
  return MicroBatchResult{pass.loss, targets_in(batch), std::isfinite(pass.loss)};
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

}  // namespace

Result<> adapts_some(const Parameters& parameters) {
  if (!parameters.specs().empty()) return ok();
  std::string targets;
  for (const std::string& target : parameters.lora().targets)
    targets += (targets.empty() ? "" : ", ") + target;
  return Error(Code::kBadInput, "the model has none of the modules that are adapted: " + targets);
}

std::unique_ptr<Model> make_chain(const KernelTable& kernels, bool recompute, Input input,
                                  Parameters parameters,
                                  std::vector<std::unique_ptr<Layer>> layers) {
  return std::make_unique<Chain>(kernels, recompute, input, std::move(parameters),
                                 std::move(layers));
}

}  // namespace starling::kernels
