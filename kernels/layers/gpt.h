#pragma once
// These are the layers of GPT-2. x is [rows, width], rows = sequences * context.

#include "core/job/job.h"
#include "kernels/layers/layer.h"

namespace starling::kernels {

// x = wte[token] + wpe[position]
class Embedding : public Layer {
 public:
  Embedding(const GptSpec& spec, Parameters& parameters);
  std::size_t tokens_tensor() const { return wte_; }
  std::size_t width() const override { return spec_.width; }
  std::size_t saved(std::size_t, std::size_t) const override { return 0; }
  std::size_t scratch(std::size_t) const override { return 0; }
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  // Writes the second use of wte; the first is the head's.
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  GptSpec spec_;
  std::size_t wte_, wpe_;
};

// x + c_proj(attention(c_attn(ln_1(x))))
class AttentionBlock : public Layer {
 public:
  AttentionBlock(const GptSpec& spec, std::uint32_t index, Parameters& parameters);
  std::size_t width() const override { return spec_.width; }
  std::size_t saved(std::size_t sequences, std::size_t rows) const override;
  std::size_t scratch(std::size_t rows) const override;
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  struct Saved;
  Saved carve(float* saved, std::size_t rows) const;
  void head_forward(const Pass& pass, const Saved& kept, std::size_t sequence,
                    std::size_t head) const;
  void head_backward(const Pass& pass, const Saved& kept, const float* d_attended, float* d_qkv,
                     float* d_scores, std::size_t sequence, std::size_t head) const;
  std::size_t head_width() const { return spec_.width / spec_.heads; }

  GptSpec spec_;
  Norm norm_;
  Linear qkv_, project_;
};

// x + c_proj(gelu(c_fc(ln_2(x))))
class FeedForwardBlock : public Layer {
 public:
  FeedForwardBlock(const GptSpec& spec, std::uint32_t index, Parameters& parameters);
  std::size_t width() const override { return spec_.width; }
  std::size_t saved(std::size_t sequences, std::size_t rows) const override;
  std::size_t scratch(std::size_t rows) const override;
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  GptSpec spec_;
  Norm norm_;
  Linear widen_, project_;
};

// Computes loss = mean cross entropy of ln_f(x) wte^T.
class LanguageHead : public Layer {
 public:
  LanguageHead(const GptSpec& spec, std::size_t tokens_tensor, Parameters& parameters);
  std::size_t width() const override { return 0; }
  std::size_t saved(std::size_t sequences, std::size_t rows) const override;
  std::size_t scratch(std::size_t rows) const override;
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  GptSpec spec_;
  Norm norm_;
  std::size_t wte_;
};

}  // namespace starling::kernels
