#include "kernels/layers/gpt.h"

#include <cmath>

namespace starling::kernels {
namespace {

// The residual stream adds 2 * layers contributions; their first values are scaled down for that.
Initial residual_initial(const GptSpec& spec) {
  return {.deviation = kGptDeviation / std::sqrt(2.0 * spec.layers)};
}

std::string prefix(std::uint32_t index) {
  return "h." + std::to_string(index) + ".";
}

}  // namespace

struct AttentionBlock::Saved {
  float* norm;
  float* qkv;  // [rows, 3 width]
  float* probabilities;
  float* attended;  // [rows, width]
};

AttentionBlock::AttentionBlock(const GptSpec& spec, std::uint32_t index, Parameters& parameters)
    : heads_{spec.context, spec.heads, spec.heads, spec.width / spec.heads} {
  parameters.begin_part();
  norm_ = Norm::declare(parameters, prefix(index) + "ln_1", spec.width);
  qkv_ = Linear::declare(parameters, prefix(index) + "attn.c_attn", spec.width, 3 * spec.width,
                         {.deviation = kGptDeviation}, Initial{});
  project_ = Linear::declare(parameters, prefix(index) + "attn.c_proj", spec.width, spec.width,
                             residual_initial(spec), Initial{});
}

std::size_t AttentionBlock::saved(std::size_t sequences, std::size_t rows) const {
  return Norm::saved(rows) + aligned_floats(rows * qkv_.out) +
         aligned_floats(heads_.probabilities(sequences)) + aligned_floats(rows * width());
}

std::size_t AttentionBlock::scratch(std::size_t rows) const {
  return 2 * aligned_floats(rows * width()) + aligned_floats(rows * qkv_.out) +
         aligned_floats(heads_.scratch());
}

AttentionBlock::Saved AttentionBlock::carve(float* saved, const Pass& pass) const {
  Carver kept(saved);
  Saved s;
  s.norm = kept.take(Norm::saved(pass.rows));
  s.qkv = kept.take(pass.rows * qkv_.out);
  s.probabilities = kept.take(heads_.probabilities(pass.sequences));
  s.attended = kept.take(pass.rows * width());
  return s;
}

void AttentionBlock::forward(Pass& pass, const float* in, float* out, float* saved) const {
  const OpenPart open(pass, pass.part_of(norm_.gain));
  const Saved kept = carve(saved, pass);
  float* const normed = pass.scratch;
  norm_.forward(pass, in, normed, kept.norm);
  qkv_.forward(pass, normed, kept.qkv);
  heads_.forward(pass, split<const float>(kept.qkv), kept.probabilities, kept.attended);
  project_.forward(pass, kept.attended, out, /*add=*/in);
}

void AttentionBlock::backward(Pass& pass, const float* in, const float*, float* saved,
                              const float* d_out, float* d_in) const {
  const OpenPart open(pass, pass.part_of(norm_.gain));
  OpenGradient d_open(pass, pass.part_of(norm_.gain), /*use=*/0);
  const Saved kept = carve(saved, pass);
  Carver scratch(pass.scratch);
  float* const normed = scratch.take(pass.rows * width());
  float* const d_attended = scratch.take(pass.rows * width());
  float* const d_qkv = scratch.take(pass.rows * qkv_.out);
  float* const d_scores = scratch.take(heads_.scratch());
  project_.backward_parameters(pass, kept.attended, d_out);
  project_.backward_input(pass, d_out, d_attended);
  heads_.backward(pass, split<const float>(kept.qkv), kept.probabilities, d_attended,
                  split<float>(d_qkv), d_scores);
  norm_.forward(pass, in, normed, kept.norm);
  qkv_.backward_parameters(pass, normed, d_qkv);
  float* const d_normed = d_attended;  // this memory is free by now
  qkv_.backward_input(pass, d_qkv, d_normed);
  norm_.backward(pass, in, kept.norm, d_normed, /*add=*/d_out, d_in);
  d_open.end();
}

FeedForwardBlock::FeedForwardBlock(const GptSpec& spec, std::uint32_t index,
                                   Parameters& parameters) {
  parameters.begin_part();
  norm_ = Norm::declare(parameters, prefix(index) + "ln_2", spec.width);
  widen_ = Linear::declare(parameters, prefix(index) + "mlp.c_fc", spec.width, 4 * spec.width,
                           {.deviation = kGptDeviation}, Initial{});
  project_ = Linear::declare(parameters, prefix(index) + "mlp.c_proj", 4 * spec.width, spec.width,
                             residual_initial(spec), Initial{});
}

std::size_t FeedForwardBlock::saved(std::size_t, std::size_t rows) const {
  return Norm::saved(rows) + aligned_floats(rows * widen_.out);
}

std::size_t FeedForwardBlock::scratch(std::size_t rows) const {
  return 2 * aligned_floats(rows * widen_.in) + 2 * aligned_floats(rows * widen_.out);
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

}  // namespace starling::kernels
