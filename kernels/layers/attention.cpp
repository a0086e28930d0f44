#include <cmath>

#include "kernels/layers/gpt.h"

namespace starling::kernels {

struct AttentionBlock::Saved {
  float* norm;
  float* qkv;            // [rows, 3 width]: queries, keys, values
  float* probabilities;  // [sequences, heads, context, context]
  float* attended;       // [rows, width]
};

AttentionBlock::AttentionBlock(const GptSpec& spec, std::uint32_t index, Parameters& parameters)
    : spec_(spec) {
  parameters.begin_part();
  const std::string prefix = "h." + std::to_string(index) + ".";
  norm_ = Norm::declare(parameters, prefix + "ln_1", spec.width);
  qkv_ = Linear::declare(parameters, prefix + "attn.c_attn", spec.width, 3 * spec.width,
                         {.deviation = 0.02}, {});
  project_ = Linear::declare(parameters, prefix + "attn.c_proj", spec.width, spec.width,
                             {.deviation = 0.02 / std::sqrt(2.0 * spec.layers)}, {});
}

std::size_t AttentionBlock::saved(std::size_t sequences, std::size_t rows) const {
  const std::size_t square = std::size_t{spec_.context} * spec_.context;
  return Norm::saved(rows) + aligned_floats(rows * qkv_.out) +
         aligned_floats(sequences * spec_.heads * square) + aligned_floats(rows * spec_.width);
}

std::size_t AttentionBlock::scratch(std::size_t rows) const {
  return 2 * aligned_floats(rows * spec_.width) + aligned_floats(rows * qkv_.out) +
         aligned_floats(std::size_t{spec_.context} * spec_.context);
}

AttentionBlock::Saved AttentionBlock::carve(float* saved, std::size_t rows) const {
  Carver kept(saved);
  Saved s;
  s.norm = kept.take(Norm::saved(rows));
  s.qkv = kept.take(rows * qkv_.out);
  s.probabilities = kept.take(rows * spec_.heads * spec_.context);
  s.attended = kept.take(rows * spec_.width);
  return s;
}

void AttentionBlock::forward(Pass& pass, const float* in, float* out, float* saved) const {
  const OpenPart open(pass, pass.part_of(norm_.gain));
  const Saved kept = carve(saved, pass.rows);
  float* const normed = pass.scratch;
  norm_.forward(pass, in, normed, kept.norm);
  qkv_.forward(pass, normed, kept.qkv);
  for (std::size_t s = 0; s < pass.sequences; ++s)
    for (std::size_t h = 0; h < spec_.heads; ++h) head_forward(pass, kept, s, h);
  project_.forward(pass, kept.attended, out, /*add=*/in);
}

void AttentionBlock::head_forward(const Pass& pass, const Saved& kept, std::size_t sequence,
                                  std::size_t head) const {
  const std::size_t t = spec_.context, c = spec_.width, d = head_width();
  const float* const q = kept.qkv + sequence * t * 3 * c + head * d;
  float* const p = kept.probabilities + (sequence * spec_.heads + head) * t * t;
  Gemm scores{.m = t, .n = t, .k = d};
  scores.a = q, scores.lda = 3 * c;
  scores.b = q + c, scores.ldb = 3 * c, scores.b_transposed = true;
  scores.c = p, scores.ldc = t;
  scores.trim = Trim::kLowerC;
  pass.multiply(scores);
  pass.kernels.softmax_causal(t, 1.0f / std::sqrt(static_cast<float>(d)), p, t);
  Gemm mix{.m = t, .n = d, .k = t};
  mix.a = p, mix.lda = t;
  mix.b = q + 2 * c, mix.ldb = 3 * c;
  mix.c = kept.attended + sequence * t * c + head * d, mix.ldc = c;
  mix.trim = Trim::kLowerA;
  pass.multiply(mix);
}

void AttentionBlock::backward(Pass& pass, const float* in, const float*, float* saved,
                              const float* d_out, float* d_in) const {
  const OpenPart open(pass, pass.part_of(norm_.gain));
  OpenGradient d_open(pass, pass.part_of(norm_.gain), /*use=*/0);
  const Saved kept = carve(saved, pass.rows);
  Carver scratch(pass.scratch);
  float* const normed = scratch.take(pass.rows * spec_.width);
  float* const d_attended = scratch.take(pass.rows * spec_.width);
  float* const d_qkv = scratch.take(pass.rows * qkv_.out);
  float* const d_scores = scratch.take(std::size_t{spec_.context} * spec_.context);
  project_.backward_parameters(pass, kept.attended, d_out);
  project_.backward_input(pass, d_out, d_attended);
  for (std::size_t s = 0; s < pass.sequences; ++s)
    for (std::size_t h = 0; h < spec_.heads; ++h)
      head_backward(pass, kept, d_attended, d_qkv, d_scores, s, h);
  norm_.forward(pass, in, normed, kept.norm);
  qkv_.backward_parameters(pass, normed, d_qkv);
  float* const d_normed = d_attended;  // this memory is free by now
  qkv_.backward_input(pass, d_qkv, d_normed);
  norm_.backward(pass, in, kept.norm, d_normed, /*add=*/d_out, d_in);
  d_open.end();
}

void AttentionBlock::head_backward(const Pass& pass, const Saved& kept, const float* d_attended,
                                   float* d_qkv, float* d_scores, std::size_t sequence,
                                   std::size_t head) const {
  const std::size_t t = spec_.context, c = spec_.width, d = head_width();
  const std::size_t at = sequence * t * 3 * c + head * d;
  const float* const q = kept.qkv + at;
  const float* const p = kept.probabilities + (sequence * spec_.heads + head) * t * t;
  const float* const d_mixed = d_attended + sequence * t * c + head * d;
  float* const dq = d_qkv + at;

  Gemm dv{.m = t, .n = d, .k = t};  // dV = P^T dO
  dv.a = p, dv.lda = t, dv.a_transposed = true;
  dv.b = d_mixed, dv.ldb = c;
  dv.c = dq + 2 * c, dv.ldc = 3 * c;
  dv.trim = Trim::kUpperA;
  pass.multiply(dv);
  Gemm dp{.m = t, .n = t, .k = d};  // dP = dO V^T
  dp.a = d_mixed, dp.lda = c;
  dp.b = q + 2 * c, dp.ldb = 3 * c, dp.b_transposed = true;
  dp.c = d_scores, dp.ldc = t;
  dp.trim = Trim::kLowerC;
  pass.multiply(dp);
  pass.kernels.softmax_causal_backward(t, 1.0f / std::sqrt(static_cast<float>(d)), p, d_scores, t);
  Gemm queries{.m = t, .n = d, .k = t};  // dQ = dS K
  queries.a = d_scores, queries.lda = t;
  queries.b = q + c, queries.ldb = 3 * c;
  queries.c = dq, queries.ldc = 3 * c;
  queries.trim = Trim::kLowerA;
  pass.multiply(queries);
  Gemm keys = queries;  // dK = dS^T Q
  keys.a_transposed = true;
  keys.b = q;
  keys.c = dq + c;
  keys.trim = Trim::kUpperA;
  pass.multiply(keys);
}

}  // namespace starling::kernels
