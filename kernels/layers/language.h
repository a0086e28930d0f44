#pragma once
// Where a language model begins and ends: tokens to rows, and rows to the loss of the tokens that follow. x is
// [rows, width], rows = sequences * context.

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/layers/layer.h"

namespace starling::kernels {

// x = tokens[token] (+ positions[position])
class Embedding : public Layer {
 public:
  struct Shape {
    std::size_t vocabulary = 0, width = 0;
    std::string tokens;                    // names of tensors
    std::optional<std::string> positions;  // none: positions enter elsewhere
    std::size_t context = 0;
    bool tied = false;  // whether the head uses the table of tokens, too
    double deviation = 0;
  };
  Embedding(Shape shape, Parameters& parameters);
  std::size_t tokens_tensor() const { return tokens_; }
  std::size_t width() const override { return shape_.width; }
  std::size_t saved(std::size_t, std::size_t) const override { return 0; }
  std::size_t scratch(std::size_t) const override { return 0; }
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  // Of a tied table it writes the second use; the first is the head's.
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  Shape shape_;
  std::size_t tokens_, positions_ = 0;
};

// Computes loss = mean cross entropy of norm(x) table^T over the rows that have a target.
class LanguageHead : public Layer {
 public:
  // `norm` lies in a part of its own; the table, [vocabulary, norm.width], in others.
  LanguageHead(std::size_t vocabulary, const Norm& norm, std::size_t table)
      : vocabulary_(vocabulary), norm_(norm), table_(table) {}
  std::size_t width() const override { return 0; }
  std::size_t saved(std::size_t sequences, std::size_t rows) const override;
  std::size_t scratch(std::size_t rows) const override;
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  // Writes the first use of the table.
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  // A run of the table, whose part is open.
  const float* rows(const Pass& pass, const Rows& run) const;
  // Returns the loss, and makes logits its gradient where one is wanted.
  double cross_entropy(const Pass& pass, float* logits) const;

  std::size_t vocabulary_;
  Norm norm_;
  std::size_t table_;
};

}  // namespace starling::kernels
