#pragma once
// Llama, and the families that are built as it is: RMSNorm, rotary positions, grouped queries, SwiGLU. Mistral has a
// window, Qwen2 biases of queries, keys and values, Qwen3 norms of queries and keys.

#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/job/models/kind.h"
#include "core/job/models/lora.h"

namespace starling {

class PublishedConfig;
struct Misfit;

enum class RopeScaling : std::uint8_t { kNone, kLinear, kLlama3 };

struct LlamaSpec {
  static constexpr ModelKind kKind{
      .word = "llama", .with_article = "a llama", .computed_by_kernels = true};

  // heads: of queries, a multiple of key_value_heads, which are shared by as many of them each. head_width: numbers of
  // each head. feed_forward: numbers between the two products of the feed-forward part.
  std::uint32_t layers = 4, heads = 4, key_value_heads = 4, head_width = 32, width = 128,
                feed_forward = 352, context = 128, vocabulary = 256;
  double norm_epsilon = 1e-5;
  // Whether the head's weights are those of the embedding.
  bool tied_embeddings = false;

  // Tokens that a token sees, itself included; 0: all before it.
  std::uint32_t window = 0;
  // Biases of queries, keys and values; norms of each head's queries and keys, before they are turned. Not both.
  bool query_key_value_bias = false, query_key_norm = false;

  // Rotary positions: pair i of a head turns by rope_theta^(-2i / head_width) a position. kLinear: that over
  // rope_factor. kLlama3: so for waves longer than rope_original_context / rope_low_freq_factor positions, not at all
  // for those shorter than rope_original_context / rope_high_freq_factor, and in between from one to the other.
  double rope_theta = 10000;
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 1, rope_low_freq_factor = 1, rope_high_freq_factor = 4;  // idle: 1, 1, 4
  std::uint32_t rope_original_context = 0;                                      // idle: 0

  std::string from;  // as GptSpec's
  LoraSpec lora;

  static constexpr std::string_view kModules[] = {
      "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
      "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
  static constexpr std::string_view kLoraTargets[] = {"q_proj", "v_proj"};
  static constexpr bool kFanInFanOut = false;

  std::uint32_t query_width() const { return heads * head_width; }
  std::uint32_t key_value_width() const { return key_value_heads * head_width; }

  ModelInput input() const { return {context, 0, vocabulary, vocabulary}; }
  void read(job_words::Section& section, const Job& job, const std::string& base);
  void write(std::ostream& out) const;
  void drop_idle();
  bool operator==(const LlamaSpec&) const = default;

  static constexpr std::string_view kModelTypes[] = {"llama", "mistral", "qwen2", "qwen3"};
  // from_weights.h. Errors of published(): kBadInput  another model_type, a member that is no such number, or a choice
  // that computes otherwise than Llama here does: another activation, other biases, a window of some layers, other rotary
  // positions.
  static Result<LlamaSpec> published(const PublishedConfig& config);
  std::optional<Misfit> misfit(const LlamaSpec& there) const;
  std::string config_text(std::optional<std::uint32_t> end_token) const;
  static std::string published_name(const std::string& tensor) {
    return tensor.starts_with("lm_head.") ? tensor : "model." + tensor;
  }
};

}  // namespace starling
