#include "kernels/layers/language.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/models/input.h"

namespace starling::kernels {
namespace {

// Calls take(r, row) for each row r of the pass whose token lies in this run, as its row `row`.
template <class Take>
void each_token(const Pass& pass, const Rows& run, Take take) {
  for (std::size_t r = 0; r < pass.rows; ++r) {
    const auto token = static_cast<std::size_t>(pass.batch.tokens[r]);
    if (token >= run.first && token - run.first < run.count) take(r, token - run.first);
  }
}

}  // namespace

Embedding::Embedding(Shape shape, Parameters& parameters) : shape_(std::move(shape)) {
  const Initial initial{.deviation = shape_.deviation};
  tokens_ = parameters.add_table(shape_.tokens, {shape_.vocabulary, shape_.width}, initial,
                                 /*uses=*/shape_.tied ? 2 : 1);
  if (shape_.positions)
    positions_ = parameters.add(*shape_.positions, {shape_.context, shape_.width}, initial);
}

void Embedding::forward(Pass& pass, const float*, float* out, float*) const {
  const std::size_t c = shape_.width;
  if (is_frozen(tokens_)) {
    for (std::size_t r = 0; r < pass.rows; ++r)
      std::copy_n(pass.frozen_rows(tokens_, std::uint64_t(pass.batch.tokens[r]) * c, c), c,
                  out + r * c);
  } else {
    for (const Rows& run : rows_of(pass, tokens_)) {
      const OpenPart open(pass, run.to_open());
      each_token(pass, run, [&](std::size_t r, std::size_t row) {
        std::copy_n(pass.parameters + row * c, c, out + r * c);
      });
    }
  }
  if (!shape_.positions) return;
  const OpenPart open(pass, pass.part_of(positions_));
  const float* const positions = pass.parameter(positions_);
  for (std::size_t r = 0; r < pass.rows; ++r)
    pass.kernels.sum(c, out + r * c, positions + r % shape_.context * c, out + r * c);
}

void Embedding::backward(Pass& pass, const float*, const float*, float*, const float* d_out,
                         float*) const {
  if (is_frozen(tokens_)) return;
  const std::size_t c = shape_.width;
  for (const Rows& run : rows_of(pass, tokens_)) {
    OpenGradient d_open(pass, run.to_open(), /*use=*/shape_.tied ? 1 : 0);
    std::fill_n(pass.gradient, run.count * c, 0.0f);
    each_token(pass, run, [&](std::size_t r, std::size_t row) {
      float* const d_row = pass.gradient + row * c;
      pass.kernels.sum(c, d_row, d_out + r * c, d_row);
    });
    d_open.end();
  }
  if (!shape_.positions) return;
  const std::size_t positions = shape_.context * c;
  OpenGradient d_open(pass, pass.part_of(positions_), /*use=*/0);
  float* const d_positions = pass.d_parameter(positions_);
  std::copy(d_out, d_out + positions, d_positions);
  for (std::size_t s = 1; s < pass.sequences; ++s)
    pass.kernels.sum(positions, d_positions, d_out + s * positions, d_positions);
  d_open.end();
}

std::size_t LanguageHead::saved(std::size_t, std::size_t rows) const {
  return Norm::saved(rows) + aligned_floats(rows * vocabulary_) +
         aligned_floats(rows * norm_.width);
}

std::size_t LanguageHead::scratch(std::size_t rows) const {
  return aligned_floats(rows * norm_.width);
}

void LanguageHead::forward(Pass& pass, const float* in, float*, float* saved) const {
  Carver kept(saved + Norm::saved(pass.rows));
  float* const logits = kept.take(pass.rows * vocabulary_);
  float* const normed = kept.take(pass.rows * norm_.width);
  {
    const OpenPart open(pass, pass.part_of(norm_.gain));
    norm_.forward(pass, in, normed, saved);
  }
  for (const Rows& run : rows_of(pass, table_)) {
    const OpenPart open(pass, run.to_open());
    Gemm g{.m = pass.rows, .n = run.count, .k = norm_.width};
    g.a = normed, g.lda = g.k;
    g.b = rows(pass, run), g.ldb = g.k, g.b_transposed = true;
    g.c = logits + run.first, g.ldc = vocabulary_;
    pass.multiply(g);
  }
  pass.loss = cross_entropy(pass, logits);
}

const float* LanguageHead::rows(const Pass& pass, const Rows& run) const {
  if (!run.frozen) return pass.parameters;
  return pass.frozen_rows(table_, std::uint64_t{run.first} * norm_.width, run.count * norm_.width);
}

double LanguageHead::cross_entropy(const Pass& pass, float* logits) const {
  const std::vector<std::int32_t>& targets = pass.batch.targets;
  const double count = targets_in(pass.batch);
  const bool gradient = pass.sink != nullptr;
  double sum = 0;
  for (std::size_t first = 0, end = 0; first < pass.rows; first = end) {  // rows of one kind
    const bool masked = targets[first] == kNotATarget;
    while (end < pass.rows && (targets[end] == kNotATarget) == masked) ++end;
    float* const these = logits + first * vocabulary_;
    if (!masked)
      sum += pass.kernels.cross_entropy(end - first, vocabulary_, these, &targets[first], gradient,
                                        static_cast<float>(1 / count));
    else if (gradient)
      std::fill_n(these, (end - first) * vocabulary_, 0.0f);
  }
  return sum / count;
}

void LanguageHead::backward(Pass& pass, const float* in, const float*, float* saved, const float*,
                            float* d_in) const {
  Carver kept(saved + Norm::saved(pass.rows));
  const float* const d_logits = kept.take(pass.rows * vocabulary_);
  const float* const normed = kept.take(pass.rows * norm_.width);
  float* const d_normed = pass.scratch;
  for (const Rows& run : rows_of(pass, table_)) {
    const OpenPart open(pass, run.to_open());
    OpenGradient d_open(pass, run.to_open(), /*use=*/0);
    if (!run.frozen) {
      Gemm g{.m = run.count, .n = norm_.width, .k = pass.rows};  // d_table = d_logits^T normed
      g.a = d_logits + run.first, g.lda = vocabulary_, g.a_transposed = true;
      g.b = normed, g.ldb = g.n;
      g.c = pass.gradient, g.ldc = g.n;
      pass.multiply(g);
    }
    Gemm h{.m = pass.rows, .n = norm_.width, .k = run.count};  // d_normed = d_logits table
    h.a = d_logits + run.first, h.lda = vocabulary_;
    h.b = rows(pass, run), h.ldb = h.n;
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
