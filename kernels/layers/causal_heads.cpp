#include "kernels/layers/causal_heads.h"

#include <cmath>

namespace starling::kernels {
namespace {

// The rows of one head in one sequence.
template <class Float>
HeadRows<Float> of_head(const CausalHeads& heads, const HeadRows<Float>& rows, std::size_t sequence,
                        std::size_t head) {
  const std::size_t first = sequence * heads.context, d = heads.head_width;
  const std::size_t shared = head / (heads.heads / heads.key_value_heads);
  const std::size_t key = first * rows.key_value_stride + shared * d;
  return {rows.queries + first * rows.query_stride + head * d, rows.keys + key, rows.values + key,
          rows.query_stride, rows.key_value_stride};
}

}  // namespace

void CausalHeads::forward(const Pass& pass, const HeadRows<const float>& rows, float* probabilities,
                          float* attended) const {
  for (std::size_t s = 0; s < pass.sequences; ++s)
    for (std::size_t h = 0; h < heads; ++h)
      head_forward(pass, of_head(*this, rows, s, h), probabilities, attended, s, h);
}

void CausalHeads::head_forward(const Pass& pass, const HeadRows<const float>& rows,
                               float* probabilities, float* attended, std::size_t sequence,
                               std::size_t head) const {
  const std::size_t t = context, d = head_width;
  float* const p = probabilities + (sequence * heads + head) * t * t;
  Gemm scores{.m = t, .n = t, .k = d};
  scores.a = rows.queries, scores.lda = rows.query_stride;
  scores.b = rows.keys, scores.ldb = rows.key_value_stride, scores.b_transposed = true;
  scores.c = p, scores.ldc = t;
  scores.trim = Trim::kLowerC;
  pass.multiply(scores);
  pass.kernels.softmax_causal(t, 1.0f / std::sqrt(static_cast<float>(d)), p, t);
  Gemm mix{.m = t, .n = d, .k = t};
  mix.a = p, mix.lda = t;
  mix.b = rows.values, mix.ldb = rows.key_value_stride;
  mix.c = attended + sequence * t * query_width() + head * d, mix.ldc = query_width();
  mix.trim = Trim::kLowerA;
  pass.multiply(mix);
}

void CausalHeads::backward(const Pass& pass, const HeadRows<const float>& rows,
                           const float* probabilities, const float* d_attended,
                           const HeadRows<float>& d_rows, float* scratch) const {
  for (std::size_t s = 0; s < pass.sequences; ++s)
    for (std::size_t h = 0; h < heads; ++h)
      head_backward(pass, of_head(*this, rows, s, h), probabilities, d_attended,
                    of_head(*this, d_rows, s, h), scratch, s, h);
}

void CausalHeads::head_backward(const Pass& pass, const HeadRows<const float>& rows,
                                const float* probabilities, const float* d_attended,
                                const HeadRows<float>& d_rows, float* d_scores,
                                std::size_t sequence, std::size_t head) const {
  const std::size_t t = context, d = head_width;
  const float* const p = probabilities + (sequence * heads + head) * t * t;
  const float* const d_mixed = d_attended + sequence * t * query_width() + head * d;
  // The first head of a group writes the gradients of its keys and values, the others add theirs.
  const bool adds = head % (heads / key_value_heads) != 0;
  const auto add_to_first = [&](Gemm& g) {
    if (adds) g.add = g.c, g.ldadd = g.ldc;
  };

  Gemm dv{.m = t, .n = d, .k = t};  // dV = P^T dO
  dv.a = p, dv.lda = t, dv.a_transposed = true;
  dv.b = d_mixed, dv.ldb = query_width();
  dv.c = d_rows.values, dv.ldc = d_rows.key_value_stride;
  dv.trim = Trim::kUpperA;
  add_to_first(dv);
  pass.multiply(dv);
  Gemm dp{.m = t, .n = t, .k = d};  // dP = dO V^T
  dp.a = d_mixed, dp.lda = query_width();
  dp.b = rows.values, dp.ldb = rows.key_value_stride, dp.b_transposed = true;
  dp.c = d_scores, dp.ldc = t;
  dp.trim = Trim::kLowerC;
  pass.multiply(dp);
  pass.kernels.softmax_causal_backward(t, 1.0f / std::sqrt(static_cast<float>(d)), p, d_scores, t);
  Gemm queries{.m = t, .n = d, .k = t};  // dQ = dS K
  queries.a = d_scores, queries.lda = t;
  queries.b = rows.keys, queries.ldb = rows.key_value_stride;
  queries.c = d_rows.queries, queries.ldc = d_rows.query_stride;
  queries.trim = Trim::kLowerA;
  pass.multiply(queries);
  Gemm keys{.m = t, .n = d, .k = t};  // dK = dS^T Q
  keys.a = d_scores, keys.lda = t, keys.a_transposed = true;
  keys.b = rows.queries, keys.ldb = rows.query_stride;
  keys.c = d_rows.keys, keys.ldc = d_rows.key_value_stride;
  keys.trim = Trim::kUpperA;
  add_to_first(keys);
  pass.multiply(keys);
}

}  // namespace starling::kernels
