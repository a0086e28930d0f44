#pragma once
// These are the blocks of Llama. x is [rows, width], rows = sequences * context.

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/job/job.h"
#include "kernels/cpu/table.h"
#include "kernels/layers/causal_heads.h"
#include "kernels/layers/language.h"

namespace starling::kernels {

inline constexpr double kLlamaDeviation = 0.02;  // of first weights

inline Embedding::Shape embedding_shape(const LlamaSpec& spec) {
  return {.vocabulary = spec.vocabulary,
          .width = spec.width,
          .tokens = "embed_tokens.weight",
          .positions = {},
          .tied = spec.tied_embeddings,
          .deviation = kLlamaDeviation};
}

// The angles of rotary positions, the same bits on every machine; made once they are asked for, as a context may be far
// longer than any text. Threads: any.
class Rotary {
 public:
  explicit Rotary(const LlamaSpec& spec);
  std::size_t pairs() const { return pairs_; }
  // Of a position, [pairs()] each.
  struct Turn {
    std::span<const float> cosines, sines;
  };
  Turn at(std::size_t position) const;
  // Turns the heads of a row at a position, which lie one after the other.
  void turn(const KernelTable& kernels, std::size_t position, std::size_t heads, bool back,
            float* row) const;

 private:
  // Of kPositions positions, [kPositions, pairs_].
  struct Angles {
    std::once_flag made;
    std::vector<float> cosines, sines;
  };
  static constexpr std::size_t kPositions = 64;
  const Angles& angles_of(std::size_t position) const;

  LlamaSpec spec_;
  std::size_t pairs_;
  mutable std::vector<Angles> angles_;  // each guarded by its flag
};

// x + o_proj(attention(turned q_proj(n), turned k_proj(n), v_proj(n))), n = input_layernorm(x). With norms of them,
// heads of queries and keys are turned behind these.
class LlamaAttention : public Layer {
 public:
  LlamaAttention(const LlamaSpec& spec, std::uint32_t index, std::shared_ptr<const Rotary> rotary,
                 Parameters& parameters);
  std::size_t width() const override { return project_.out; }
  std::size_t saved(std::size_t sequences, std::size_t rows) const override;
  std::size_t scratch(std::size_t rows) const override;
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  struct Saved;
  Saved carve(float* saved, const Pass& pass) const;
  void turn(const Pass& pass, bool back, float* queries, float* keys) const;

  CausalHeads heads_;
  std::shared_ptr<const Rotary> rotary_;
  Norm norm_;
  Linear queries_, keys_, values_, project_;
  std::optional<Norm> query_norm_, key_norm_;  // of each head
};

// x + down_proj(silu(gate_proj(n)) up_proj(n)), n = post_attention_layernorm(x)
class LlamaFeedForward : public Layer {
 public:
  LlamaFeedForward(const LlamaSpec& spec, std::uint32_t index, Parameters& parameters);
  std::size_t width() const override { return down_.out; }
  std::size_t saved(std::size_t sequences, std::size_t rows) const override;
  std::size_t scratch(std::size_t rows) const override;
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  Norm norm_;
  Linear gate_, up_, down_;
};

}  // namespace starling::kernels
