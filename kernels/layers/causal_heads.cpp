#include "kernels/layers/causal_heads.h"

#include <algorithm>
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

// Rows of a band: as many as a product's tiles need, few beside a window.
constexpr std::size_t kBandRows = 48;

}  // namespace

std::vector<CausalHeads::Band> CausalHeads::bands() const {
  if (!windowed()) return {{0, context, 0, context}};
  std::vector<Band> all;
  for (std::size_t row = 0; row < context; row += kBandRows) {
    const std::size_t rows = std::min(kBandRows, context - row);
    const std::size_t column = row + 1 > window ? row + 1 - window : 0;
    all.push_back({row, rows, column, row + rows - column});
  }
  return all;
}

float CausalHeads::scale() const {
  return 1.0f / std::sqrt(static_cast<float>(head_width));
}

void CausalHeads::forward(const Pass& pass, const HeadRows<const float>& rows, float* probabilities,
                          float* attended) const {
  const auto all = bands();
  for (std::size_t s = 0; s < pass.sequences; ++s)
    for (std::size_t h = 0; h < heads; ++h)
      for (const Band& band : all)
        band_forward(pass, of_head(*this, rows, s, h), band,
                     probabilities + (s * heads + h) * context * context,
                     attended + s * context * query_width() + h * head_width);
}

void CausalHeads::band_forward(const Pass& pass, const HeadRows<const float>& head,
                               const Band& band, float* probabilities, float* attended) const {
  const bool whole = !windowed();
  float* const p = probabilities + band.first_row * context + band.first_column;
  Gemm scores{.m = band.rows, .n = band.columns, .k = head_width};
  scores.a = head.queries + band.first_row * head.query_stride, scores.lda = head.query_stride;
  scores.b = head.keys + band.first_column * head.key_value_stride;
  scores.ldb = head.key_value_stride, scores.b_transposed = true;
  scores.c = p, scores.ldc = context;
  if (whole) scores.trim = Trim::kLowerC;
  pass.multiply(scores);
  pass.kernels.softmax_causal({band.rows, band.columns, band.first_row - band.first_column, window},
                              scale(), p, context);
  Gemm mix{.m = band.rows, .n = head_width, .k = band.columns};
  mix.a = p, mix.lda = context;
  mix.b = head.values + band.first_column * head.key_value_stride, mix.ldb = head.key_value_stride;
  mix.c = attended + band.first_row * query_width(), mix.ldc = query_width();
  if (whole) mix.trim = Trim::kLowerA;
  pass.multiply(mix);
}

void CausalHeads::backward(const Pass& pass, const HeadRows<const float>& rows,
                           const float* probabilities, const float* d_attended,
                           const HeadRows<float>& d_rows, float* scratch) const {
  const auto all = bands();
  for (std::size_t s = 0; s < pass.sequences; ++s)
    for (std::size_t h = 0; h < heads; ++h) {
      const HeadRows<float> d_head = of_head(*this, d_rows, s, h);
      // The first head of a group writes the gradients of its keys and values, the others add theirs; and so do bands,
      // which see some of the same.
      const bool first = h % (heads / key_value_heads) == 0;
      for (std::size_t r = 0; first && windowed() && r < context; ++r) {
        std::fill_n(d_head.keys + r * d_head.key_value_stride, head_width, 0.0f);
        std::fill_n(d_head.values + r * d_head.key_value_stride, head_width, 0.0f);
      }
      for (const Band& band : all)
        band_backward(pass, of_head(*this, rows, s, h), band,
                      probabilities + (s * heads + h) * context * context,
                      d_attended + s * context * query_width() + h * head_width, d_head, scratch,
                      /*adds=*/!first || windowed());
    }
}

void CausalHeads::band_backward(const Pass& pass, const HeadRows<const float>& head,
                                const Band& band, const float* probabilities,
                                const float* d_attended, const HeadRows<float>& d_head,
                                float* d_scores, bool adds) const {
  const bool whole = !windowed();
  const std::size_t d = head_width, stride = head.key_value_stride;
  const std::size_t d_stride = d_head.key_value_stride;
  const float* const p = probabilities + band.first_row * context + band.first_column;
  const float* const d_mixed = d_attended + band.first_row * query_width();
  const auto add_to_c = [&](Gemm& g) {
    if (adds) g.add = g.c, g.ldadd = g.ldc;
  };

  Gemm dv{.m = band.columns, .n = d, .k = band.rows};  // dV = P^T dO
  dv.a = p, dv.lda = context, dv.a_transposed = true;
  dv.b = d_mixed, dv.ldb = query_width();
  dv.c = d_head.values + band.first_column * d_stride, dv.ldc = d_stride;
  if (whole) dv.trim = Trim::kUpperA;
  add_to_c(dv);
  pass.multiply(dv);
  Gemm dp{.m = band.rows, .n = band.columns, .k = d};  // dP = dO V^T
  dp.a = d_mixed, dp.lda = query_width();
  dp.b = head.values + band.first_column * stride, dp.ldb = stride, dp.b_transposed = true;
  dp.c = d_scores, dp.ldc = context;
  if (whole) dp.trim = Trim::kLowerC;
  pass.multiply(dp);
  // Rows of the probabilities and of their gradients lie as far apart.
  pass.kernels.softmax_causal_backward(
      {band.rows, band.columns, band.first_row - band.first_column, window}, scale(), p, d_scores,
      context);
  Gemm queries{.m = band.rows, .n = d, .k = band.columns};  // dQ = dS K
  queries.a = d_scores, queries.lda = context;
  queries.b = head.keys + band.first_column * stride, queries.ldb = stride;
  queries.c = d_head.queries + band.first_row * d_head.query_stride;
  queries.ldc = d_head.query_stride;
  if (whole) queries.trim = Trim::kLowerA;
  pass.multiply(queries);
  Gemm keys{.m = band.columns, .n = d, .k = band.rows};  // dK = dS^T Q
  keys.a = d_scores, keys.lda = context, keys.a_transposed = true;
  keys.b = head.queries + band.first_row * head.query_stride, keys.ldb = head.query_stride;
  keys.c = d_head.keys + band.first_column * d_stride, keys.ldc = d_stride;
  if (whole) keys.trim = Trim::kUpperA;
  add_to_c(keys);
  pass.multiply(keys);
}

}  // namespace starling::kernels
