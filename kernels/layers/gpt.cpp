#include "kernels/layers/gpt.h"

#include <cmath>

namespace starling::kernels {
namespace {

constexpr double kDeviation = 0.02;

// The residual stream adds 2 layers contributions; their start is scaled down accordingly.
Initial residual_initial(const GptSpec& spec) {
  return {.deviation = kDeviation / std::sqrt(2.0 * spec.layers)};
}

std::string prefix(std::uint32_t index) {
  return "h." + std::to_string(index) + ".";
}

}  // namespace

Embedding::Embedding(const GptSpec& spec, Parameters& parameters)
    : spec_(spec),
      wte_(parameters.add("wte.weight", {spec.vocabulary, spec.width}, {.deviation = kDeviation})),
      wpe_(parameters.add("wpe.weight", {spec.context, spec.width}, {.deviation = kDeviation})) {}

void Embedding::forward(Pass& pass, const float*, float* out, float*) const {
  const std::size_t c = spec_.width;
  for (std::size_t r = 0; r < pass.rows; ++r) {
    const auto token = static_cast<std::size_t>(pass.batch.tokens[r]);
    pass.kernels.sum(c, pass.parameter(wte_) + token * c,
                     pass.parameter(wpe_) + r % spec_.context * c, out + r * c);
  }
}

void Embedding::backward(Pass& pass, const float*, const float*, float*, const float* d_out,
                         float*) const {
  const std::size_t c = spec_.width, positions = spec_.context * c;
  float* const d_wte = pass.d_parameter(wte_);
  float* const d_wpe = pass.d_parameter(wpe_);
  for (std::size_t r = 0; r < pass.rows; ++r) {
    float* const row = d_wte + static_cast<std::size_t>(pass.batch.tokens[r]) * c;
    pass.kernels.sum(c, row, d_out + r * c, row);
  }
  std::copy(d_out, d_out + positions, d_wpe);
  for (std::size_t s = 1; s < pass.sequences; ++s)
    pass.kernels.sum(positions, d_wpe, d_out + s * positions, d_wpe);
}

FeedForwardBlock::FeedForwardBlock(const GptSpec& spec, std::uint32_t index, Parameters& parameters)
    : spec_(spec),
      norm_(Norm::declare(parameters, prefix(index) + "ln_2", spec.width)),
      widen_(Linear::declare(parameters, prefix(index) + "mlp.c_fc", spec.width, 4 * spec.width,
                             {.deviation = kDeviation}, {})),
      project_(Linear::declare(parameters, prefix(index) + "mlp.c_proj", 4 * spec.width, spec.width,
                               residual_initial(spec), {})) {}

std::size_t FeedForwardBlock::saved(std::size_t, std::size_t rows) const {
  return Norm::saved(rows) + aligned_floats(rows * 4 * spec_.width);
}

std::size_t FeedForwardBlock::scratch(std::size_t rows) const {
  return 2 * aligned_floats(rows * spec_.width) + 2 * aligned_floats(rows * 4 * spec_.width);
}

void FeedForwardBlock::forward(Pass& pass, const float* in, float* out, float* saved) const {
  Carver scratch(pass.scratch);
  float* const normed = scratch.take(pass.rows * widen_.in);
  float* const active = scratch.take(pass.rows * widen_.out);
  float* const u = saved + Norm::saved(pass.rows);
  norm_.forward(pass, in, normed, saved);
  widen_.forward(pass, normed, u);
  pass.kernels.gelu(pass.rows * widen_.out, u, active);
  project_.forward(pass, active, out, /*add=*/in);
}

void FeedForwardBlock::backward(Pass& pass, const float* in, const float*, float* saved,
                                const float* d_out, float* d_in) const {
  Carver scratch(pass.scratch);
  float* const normed = scratch.take(pass.rows * widen_.in);
  float* const d_normed = scratch.take(pass.rows * widen_.in);
  float* const active = scratch.take(pass.rows * widen_.out);
  float* const du = scratch.take(pass.rows * widen_.out);
  const float* const u = saved + Norm::saved(pass.rows);
  project_.backward_input(pass, d_out, du);
  pass.kernels.gelu_backward(pass.rows * widen_.out, u, du, active);
  project_.backward_parameters(pass, active, d_out);
  norm_.forward(pass, in, normed, saved);
  widen_.backward_parameters(pass, normed, du);
  widen_.backward_input(pass, du, d_normed);
  norm_.backward(pass, in, saved, d_normed, /*add=*/d_out, d_in);
}

LanguageHead::LanguageHead(const GptSpec& spec, std::size_t tokens_tensor, Parameters& parameters)
    : spec_(spec), norm_(Norm::declare(parameters, "ln_f", spec.width)), wte_(tokens_tensor) {}

std::size_t LanguageHead::saved(std::size_t, std::size_t rows) const {
  return Norm::saved(rows) + aligned_floats(rows * spec_.vocabulary) +
         aligned_floats(rows * spec_.width);
}

std::size_t LanguageHead::scratch(std::size_t rows) const {
  return aligned_floats(rows * spec_.width);
}

void LanguageHead::forward(Pass& pass, const float* in, float*, float* saved) const {
  Carver kept(saved + Norm::saved(pass.rows));
  float* const logits = kept.take(pass.rows * spec_.vocabulary);
  float* const normed = kept.take(pass.rows * spec_.width);
  norm_.forward(pass, in, normed, saved);
  Gemm g{.m = pass.rows, .n = spec_.vocabulary, .k = spec_.width};
  g.a = normed, g.lda = g.k;
  g.b = pass.parameter(wte_), g.ldb = g.k, g.b_transposed = true;
  g.c = logits, g.ldc = g.n;
  pass.multiply(g);
  const auto rows = static_cast<double>(pass.rows);
  pass.loss = pass.kernels.cross_entropy(pass.rows, g.n, logits, pass.batch.targets.data(),
                                         pass.gradient != nullptr, static_cast<float>(1 / rows)) /
              rows;
}

void LanguageHead::backward(Pass& pass, const float* in, const float*, float* saved, const float*,
                            float* d_in) const {
  Carver kept(saved + Norm::saved(pass.rows));
  const float* const d_logits = kept.take(pass.rows * spec_.vocabulary);
  const float* const normed = kept.take(pass.rows * spec_.width);
  float* const d_normed = pass.scratch;
  Gemm g{.m = spec_.vocabulary, .n = spec_.width, .k = pass.rows};  // d_wte = d_logits^T normed
  g.a = d_logits, g.lda = g.m, g.a_transposed = true;
  g.b = normed, g.ldb = g.n;
  g.c = pass.d_parameter(wte_), g.ldc = g.n;
  pass.multiply(g);
  Gemm h{.m = pass.rows, .n = spec_.width, .k = spec_.vocabulary};  // d_normed = d_logits wte
  h.a = d_logits, h.lda = h.k;
  h.b = pass.parameter(wte_), h.ldb = h.n;
  h.c = d_normed, h.ldc = h.n;
  pass.multiply(h);
  norm_.backward(pass, in, saved, d_normed, /*add=*/nullptr, d_in);
}

}  // namespace starling::kernels
