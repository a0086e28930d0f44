#include "kernels/layers/gpt.h"

#include <algorithm>
#include <cmath>

namespace starling::kernels {
namespace {

constexpr double kDeviation = 0.02;

// The residual stream adds 2 * layers contributions; their first values are scaled down for that.
Initial residual_initial(const GptSpec& spec) {
  return {.deviation = kDeviation / std::sqrt(2.0 * spec.layers)};
}

std::string prefix(std::uint32_t index) {
  return "h." + std::to_string(index) + ".";
}

// Calls take(r, row) for each row r of the pass whose token lies in this run, as its row `row`.
template <class Take>
void each_token(const Pass& pass, const Rows& run, Take take) {
  for (std::size_t r = 0; r < pass.rows; ++r) {
    const auto token = static_cast<std::size_t>(pass.batch.tokens[r]);
    if (token >= run.first && token - run.first < run.count) take(r, token - run.first);
  }
}

}  // namespace

Embedding::Embedding(const GptSpec& spec, Parameters& parameters)
    : spec_(spec),
      wte_(parameters.add_table("wte.weight", {spec.vocabulary, spec.width},
                                {.deviation = kDeviation}, /*uses=*/2)),
      wpe_(parameters.add("wpe.weight", {spec.context, spec.width}, {.deviation = kDeviation})) {}

void Embedding::forward(Pass& pass, const float*, float* out, float*) const {
  const std::size_t c = spec_.width;
  for (const Rows& run : rows_by_part(pass.layout, wte_)) {
    const OpenPart open(pass, run.part);
    each_token(pass, run, [&](std::size_t r, std::size_t row) {
      std::copy_n(pass.parameters + row * c, c, out + r * c);
    });
  }
  const OpenPart open(pass, pass.part_of(wpe_));
  for (std::size_t r = 0; r < pass.rows; ++r)
    pass.kernels.sum(c, out + r * c, pass.parameter(wpe_) + r % spec_.context * c, out + r * c);
}

void Embedding::backward(Pass& pass, const float*, const float*, float*, const float* d_out,
                         float*) const {
  const std::size_t c = spec_.width, positions = spec_.context * c;
  for (const Rows& run : rows_by_part(pass.layout, wte_)) {
    OpenGradient d_open(pass, run.part, /*use=*/1);
    std::fill_n(pass.gradient, run.count * c, 0.0f);
    each_token(pass, run, [&](std::size_t r, std::size_t row) {
      float* const d_row = pass.gradient + row * c;
      pass.kernels.sum(c, d_row, d_out + r * c, d_row);
    });
    d_open.end();
  }
  OpenGradient d_open(pass, pass.part_of(wpe_), /*use=*/0);
  float* const d_wpe = pass.d_parameter(wpe_);
  std::copy(d_out, d_out + positions, d_wpe);
  for (std::size_t s = 1; s < pass.sequences; ++s)
    pass.kernels.sum(positions, d_wpe, d_out + s * positions, d_wpe);
  d_open.end();
}

FeedForwardBlock::FeedForwardBlock(const GptSpec& spec, std::uint32_t index, Parameters& parameters)
    : spec_(spec) {
  parameters.begin_part();
  norm_ = Norm::declare(parameters, prefix(index) + "ln_2", spec.width);
  widen_ = Linear::declare(parameters, prefix(index) + "mlp.c_fc", spec.width, 4 * spec.width,
                           {.deviation = kDeviation}, {});
  project_ = Linear::declare(parameters, prefix(index) + "mlp.c_proj", 4 * spec.width, spec.width,
                             residual_initial(spec), {});
}

std::size_t FeedForwardBlock::saved(std::size_t, std::size_t rows) const {
  return Norm::saved(rows) + aligned_floats(rows * 4 * spec_.width);
}

std::size_t FeedForwardBlock::scratch(std::size_t rows) const {
  return 2 * aligned_floats(rows * spec_.width) + 2 * aligned_floats(rows * 4 * spec_.width);
}

void FeedForwardBlock::forward(Pass& pass, const float* in, float* out, float* saved) const {
  const OpenPart open(pass, pass.part_of(norm_.gain));
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
  const OpenPart open(pass, pass.part_of(norm_.gain));
  OpenGradient d_open(pass, pass.part_of(norm_.gain), /*use=*/0);
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
  d_open.end();
}

LanguageHead::LanguageHead(const GptSpec& spec, std::size_t tokens_tensor, Parameters& parameters)
    : spec_(spec), wte_(tokens_tensor) {
  parameters.begin_part();
  norm_ = Norm::declare(parameters, "ln_f", spec.width);
}

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
  {
    const OpenPart open(pass, pass.part_of(norm_.gain));
    norm_.forward(pass, in, normed, saved);
  }
  for (const Rows& run : rows_by_part(pass.layout, wte_)) {
    const OpenPart open(pass, run.part);
    Gemm g{.m = pass.rows, .n = run.count, .k = spec_.width};
    g.a = normed, g.lda = g.k;
    g.b = pass.parameters, g.ldb = g.k, g.b_transposed = true;
    g.c = logits + run.first, g.ldc = spec_.vocabulary;
    pass.multiply(g);
  }
  const auto rows = static_cast<double>(pass.rows);
  pass.loss =
      pass.kernels.cross_entropy(pass.rows, spec_.vocabulary, logits, pass.batch.targets.data(),
                                 pass.sink != nullptr, static_cast<float>(1 / rows)) /
      rows;
}

void LanguageHead::backward(Pass& pass, const float* in, const float*, float* saved, const float*,
                            float* d_in) const {
  Carver kept(saved + Norm::saved(pass.rows));
  const float* const d_logits = kept.take(pass.rows * spec_.vocabulary);
  const float* const normed = kept.take(pass.rows * spec_.width);
  float* const d_normed = pass.scratch;
  for (const Rows& run : rows_by_part(pass.layout, wte_)) {
    const OpenPart open(pass, run.part);
    OpenGradient d_open(pass, run.part, /*use=*/0);
    Gemm g{.m = run.count, .n = spec_.width, .k = pass.rows};  // d_wte = d_logits^T normed
    g.a = d_logits + run.first, g.lda = spec_.vocabulary, g.a_transposed = true;
    g.b = normed, g.ldb = g.n;
    g.c = pass.gradient, g.ldc = g.n;
    pass.multiply(g);
    Gemm h{.m = pass.rows, .n = spec_.width, .k = run.count};  // d_normed = d_logits wte
    h.a = d_logits + run.first, h.lda = spec_.vocabulary;
    h.b = pass.parameters, h.ldb = h.n;
    h.c = d_normed, h.ldc = h.n;
    if (run.first > 0) h.add = d_normed, h.ldadd = h.n;
    pass.multiply(h);
    d_open.end();
  }
  const OpenPart open(pass, pass.part_of(norm_.gain));
  OpenGradient d_open(pass, pass.part_of(norm_.gain), /*use=*/0);
  norm_.backward(pass, in, saved, d_normed, /*add=*/nullptr, d_in);
  d_open.end();
}

}  // namespace starling::kernels
