#include "kernels/models/synthetic.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "kernels/models/flat.h"
#include "kernels/models/kinds.h"
#include "kernels/models/synthetic_block.h"

namespace starling::kernels {
namespace {

constexpr std::uint32_t kLayers = 3;
constexpr float kInitialDeviation = 0.02f;  // of the initial weights

static_assert(synthetic::kBlockElements == kBlock);
using synthetic::common;
using synthetic::half_noise;

using BlockGradient = void (*)(std::uint32_t key, float scale, const float* w, float* gradient,
                               unsigned used);
const BlockGradient block_gradient = [] {
  const BlockGradient avx2 = synthetic::avx2_block_gradient();
  return avx2 != nullptr ? avx2 : synthetic::block_gradient;
}();

float scale_of(std::uint32_t tensor, std::uint32_t bits) {
  const float usual = std::ldexp(1.0f, -8 - static_cast<int>(tensor * 5 % 7));
  return (bits >> 20) == 0 ? 32 * usual : usual;
}

std::vector<TensorSpec> shapes(std::uint64_t parameters) {
  STARLING_CHECK(parameters >= kSyntheticParametersMin);
  // With this width the layers take about three quarters.
  const auto c = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(parameters) / 48));
  std::vector<TensorSpec> tensors{{.name = "embedding", .shape = {}, .by_rows = true}};
  std::uint32_t part = 0;
  const auto add = [&](std::string name, std::vector<std::uint64_t> shape) {
    tensors.push_back({.name = std::move(name), .shape = std::move(shape), .layer = part});
  };
  for (std::uint32_t i = 0; i < kLayers; ++i) {
    const std::string layer = "layer." + std::to_string(i) + ".";
    ++part;
    add(layer + "mix.weight", {c, 3 * c});
    add(layer + "mix.bias", {3 * c});
    add(layer + "join.weight", {c, c});
    add(layer + "join.bias", {c});
    ++part;
    add(layer + "widen.weight", {c, 4 * c});
    add(layer + "widen.bias", {4 * c});
    add(layer + "narrow.weight", {4 * c, c});
    add(layer + "narrow.bias", {c});
  }
  std::uint64_t left = parameters;
  for (std::size_t t = 1; t < tensors.size(); ++t) left -= tensors[t].elements();
  tensors[0].shape = {left / c, c};
  ++part;
  if (left % c != 0) add("rest", {left % c});
  return tensors;
}

class Synthetic : public Model {
 public:
  explicit Synthetic(const SyntheticSpec& spec)
      : tensors_(shapes(spec.parameters)), layout_(tensors_) {}

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }

  // Sets matrices uniform with the deviation of a GPT's, vectors zero.
  Result<> initialise(std::uint64_t seed, const Layout& layout,
                      std::span<float> parameters) const override {
    STARLING_CHECK(parameters.size() == layout_.elements());
    for (PartId p = 0; p < layout_.parts().size(); ++p) {
      const Part& part = layout_.parts()[p];
      STARLING_TRY(
          initialise_part(seed, layout, p, parameters.subspan(part.first(), part.elements())));
    }
    return ok();
  }
  Result<> initialise_part(std::uint64_t seed, const Layout& layout, PartId p,
                           std::span<float> parameters) const override {
    STARLING_CHECK(layout.elements() == layout_.elements());
    const Part& part = layout_.parts()[p];
    STARLING_CHECK(parameters.size() == part.elements());
    const float width = 2 * std::sqrt(3.0f) * kInitialDeviation;
    std::fill(parameters.begin(), parameters.end(), 0.0f);
    for (std::uint32_t b = part.first_block; b < part.first_block + part.blocks; ++b) {
      if (tensors_[layout_.tensor_of(b)].shape.size() < 2) continue;
      const std::uint32_t key = random4(seed, Purpose::kInitialWeights, 0, 0, b)[0];
      float* const w = parameters.data() + (std::uint64_t{b} * kBlock - part.first());
      for (std::uint32_t j = 0; j < layout_.used(b); ++j) w[j] = width * half_noise(key, j);
    }
    return ok();
  }

  Result<MicroBatchResult> forward_backward(std::span<const float> parameters, const Batch& batch,
                                            Workspace& workspace,
                                            std::span<float> gradient) const override {
    STARLING_CHECK(parameters.size() == layout_.elements());
    FlatSource source(layout_, parameters.data());
    FlatSink sink(layout_, gradient);
    return pass(layout_, source, batch, workspace, sink);
  }

  // Passes as a network would: all parts forward, for the loss, and backward, for the gradient.
  Result<MicroBatchResult> pass(const Layout& layout, PartSource& parameters, const Batch& batch,
                                Workspace&, GradientSink& gradient) const override {
    STARLING_CHECK(layout.elements() == layout_.elements());
    double sum = 0;
    for (PartId p = 0; p < layout_.parts().size(); ++p) {
      const float* const part = parameters.acquire(p);
      for (std::uint64_t i = 0; i < layout_.parts()[p].elements(); i += kBlock) {
        const double w = part[i];
        sum += common(0) * w + w * w / 32;
      }
      parameters.release(p);
    }
    for (auto p = PartId(layout_.parts().size()); p > 0;) {
      --p;
      const float* w = parameters.acquire(p);
      float* out = gradient.begin(p, /*use=*/0);
      const Part& part = layout_.parts()[p];
      for (std::uint32_t b = part.first_block; b < part.first_block + part.blocks; ++b) {
        block(batch.draw, b, w, out);
        w += kBlock;
        out += kBlock;
      }
      gradient.end(p, /*use=*/0);
      parameters.release(p);
    }
    const double loss = loss_of(sum, batch.draw);
    return MicroBatchResult{loss, batch.sequences, std::isfinite(loss)};
  }

 private:
  void block(const DrawKey& draw, std::uint32_t b, const float* w, float* gradient) const {
    const auto bits =
        random4(draw.seed, Purpose::kSyntheticGradient, draw.step, draw.micro_batch, b);
    block_gradient(bits[0], scale_of(layout_.tensor_of(b), bits[1]), w, gradient, layout_.used(b));
  }

  double loss_of(double sum, const DrawKey& draw) const {
    // This index belongs to no block.
    const auto bits = random4(draw.seed, Purpose::kSyntheticGradient, draw.step, draw.micro_batch,
                              layout_.blocks());
    return 4 + sum / layout_.blocks() + (2 * uniform(bits[0]) - 1) / 16;
  }

  const std::vector<TensorSpec> tensors_;
  const Layout layout_;
};

}  // namespace

MadeModel make(const SyntheticSpec& spec, const KernelTable&, bool) {
  if (spec.parameters >= kSyntheticParametersMin && spec.parameters <= kElementsMax)
    return make_synthetic(spec);
  return Error(Code::kBadInput, "parameters is " + std::to_string(spec.parameters) + "; expected " +
                                    std::to_string(kSyntheticParametersMin) + " to " +
                                    std::to_string(kElementsMax) + "; [model]");
}

std::unique_ptr<Model> make_synthetic(const SyntheticSpec& spec) {
  return std::make_unique<Synthetic>(spec);
}

std::chrono::nanoseconds compute_time(const ModelSpec& model, std::uint64_t seed,
                                      std::uint64_t step, MicroBatch m) {
  const auto* spec = std::get_if<SyntheticSpec>(&model);
  if (spec == nullptr) return {};
  const double u = uniform(random4(seed, Purpose::kComputeTime, step, m, 0)[0]);
  const std::chrono::duration<double, std::milli> ms(spec->compute_ms *
                                                     (1 + spec->jitter * (2 * u - 1)));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(ms);
}

}  // namespace starling::kernels
