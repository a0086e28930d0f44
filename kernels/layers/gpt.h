#pragma once
// These are the blocks of GPT-2. x is [rows, width], rows = sequences * context.

#include "core/job/job.h"
#include "kernels/layers/causal_heads.h"
#include "kernels/layers/language.h"

namespace starling::kernels {

inline constexpr double kGptDeviation = 0.02;  // of first weights

inline Embedding::Shape embedding_shape(const GptSpec& spec) {
  return {.vocabulary = spec.vocabulary,
          .width = spec.width,
          .tokens = "wte.weight",
          .positions = "wpe.weight",
          .context = spec.context,
          .tied = true,
          .deviation = kGptDeviation};
}

// x + c_proj(attention(c_attn(ln_1(x))))
class AttentionBlock : public Layer {
 public:
  AttentionBlock(const GptSpec& spec, std::uint32_t index, Parameters& parameters);
  std::size_t width() const override { return project_.out; }
  std::size_t saved(std::size_t sequences, std::size_t rows) const override;
  std::size_t scratch(std::size_t rows) const override;
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  struct Saved;
  Saved carve(float* saved, const Pass& pass) const;
  // Queries, keys and values are thirds of a row.
  template <class Float>
  HeadRows<Float> split(Float* qkv) const {
    return {qkv, qkv + width(), qkv + 2 * width(), qkv_.out, qkv_.out};
  }

  CausalHeads heads_;
  Norm norm_;
  Linear qkv_, project_;
};

// x + c_proj(gelu(c_fc(ln_2(x))))
class FeedForwardBlock : public Layer {
 public:
  FeedForwardBlock(const GptSpec& spec, std::uint32_t index, Parameters& parameters);
  std::size_t width() const override { return project_.out; }
  std::size_t saved(std::size_t sequences, std::size_t rows) const override;
  std::size_t scratch(std::size_t rows) const override;
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  Norm norm_;
  Linear widen_, project_;
};

}  // namespace starling::kernels
