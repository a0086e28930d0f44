#include "kernels/layers/llama.h"

#include <cmath>
#include <string>
#include <utility>

#include "kernels/cpu/portable_math.h"

namespace starling::kernels {
namespace {

constexpr double kTurn = 6.28318530717958647692;

// The residual stream adds 2 * layers contributions; their first values are scaled down for that.
Initial residual(const LlamaSpec& spec) {
  return {.deviation = kLlamaDeviation / std::sqrt(2.0 * spec.layers)};
}

std::string layer_name(std::uint32_t index) {
  return "layers." + std::to_string(index) + ".";
}

// The angle of a pair at position 1. It is rounded to float where transformers rounds, as published weights were
// trained with those.
float frequency(const LlamaSpec& spec, std::size_t pair) {
  const double exponent =
      static_cast<double>(static_cast<float>(2 * pair) / static_cast<float>(spec.head_width));
  const auto plain = static_cast<float>(portable_exp(-exponent * portable_log(spec.rope_theta)));
  const double slowed = static_cast<double>(plain) / spec.rope_factor;
  if (spec.rope_scaling == RopeScaling::kNone) return plain;
  if (spec.rope_scaling == RopeScaling::kLinear) return static_cast<float>(slowed);
  const double wave = kTurn / plain, context = spec.rope_original_context;
  if (wave > context / spec.rope_low_freq_factor) return static_cast<float>(slowed);
  if (wave < context / spec.rope_high_freq_factor) return plain;
  const double share = (context / wave - spec.rope_low_freq_factor) /
                       (spec.rope_high_freq_factor - spec.rope_low_freq_factor);
  return static_cast<float>((1 - share) * slowed + share * static_cast<double>(plain));
}

}  // namespace

Rotary::Rotary(const LlamaSpec& spec)
    : spec_(spec),
      pairs_(spec.head_width / 2),
      angles_((spec.context + kPositions - 1) / kPositions) {}

const Rotary::Angles& Rotary::angles_of(std::size_t position) const {
  const std::size_t block = position / kPositions;
  Angles& angles = angles_[block];
  std::call_once(angles.made, [&] {
    std::vector<float> frequencies(pairs_);
    for (std::size_t i = 0; i < pairs_; ++i) frequencies[i] = frequency(spec_, i);
    angles.cosines.reserve(kPositions * pairs_);
    angles.sines.reserve(kPositions * pairs_);
    for (std::size_t i = 0; i < kPositions; ++i)
      for (const float each : frequencies) {
        const float angle = static_cast<float>(block * kPositions + i) * each;
        const double turns = static_cast<double>(angle) / kTurn;
        double cosine = 0, sine = 0;
        portable_cos_sin(turns - std::floor(turns), cosine, sine);
        angles.cosines.push_back(static_cast<float>(cosine));
        angles.sines.push_back(static_cast<float>(sine));
      }
  });
  return angles;
}

Rotary::Turn Rotary::at(std::size_t position) const {
  const Angles& angles = angles_of(position);
  const std::size_t first = position % kPositions * pairs_;
  return {std::span(angles.cosines).subspan(first, pairs_),
          std::span(angles.sines).subspan(first, pairs_)};
}

void Rotary::turn(const KernelTable& kernels, std::size_t position, std::size_t heads, bool back,
                  float* row) const {
  const Turn by = at(position);
  for (std::size_t h = 0; h < heads; ++h)
    kernels.rotate(pairs_, by.cosines.data(), by.sines.data(), back, row + h * 2 * pairs_);
}

struct LlamaAttention::Saved {
  float* norm;
  // [rows, width of their heads], queries and keys normed and turned.
  float *queries, *keys, *values;
  // Queries and keys before their norms, and what these norms save.
  float *plain_queries, *plain_keys, *query_norm, *key_norm;
  float* probabilities;
  float* attended;  // as queries

  HeadRows<const float> rows(const CausalHeads& heads) const {
    return {queries, keys, values, heads.query_width(), heads.key_value_width()};
  }
};

LlamaAttention::LlamaAttention(const LlamaSpec& spec, std::uint32_t index,
                               std::shared_ptr<const Rotary> rotary, Parameters& parameters)
    : heads_{spec.context, spec.heads, spec.key_value_heads, spec.head_width, spec.window},
      rotary_(std::move(rotary)) {
  parameters.begin_part();
  const std::string name = layer_name(index);
  const auto linear = [&](const char* which, std::size_t in, std::size_t out, Initial first,
                          std::optional<Initial> bias = std::nullopt) {
    return Linear::declare(parameters, name + "self_attn." + which, in, out, first, bias,
                           Weights::kOutIn);
  };
  const Initial initial{.deviation = kLlamaDeviation};
  const auto bias = spec.query_key_value_bias ? std::optional<Initial>(Initial{}) : std::nullopt;
  norm_ = Norm::declare_rms(parameters, name + "input_layernorm", spec.width, spec.norm_epsilon);
  queries_ = linear("q_proj", spec.width, heads_.query_width(), initial, bias);
  keys_ = linear("k_proj", spec.width, heads_.key_value_width(), initial, bias);
  values_ = linear("v_proj", spec.width, heads_.key_value_width(), initial, bias);
  project_ = linear("o_proj", heads_.query_width(), spec.width, residual(spec));
  if (!spec.query_key_norm) return;
  const auto norm = [&](const char* which) {
    return Norm::declare_rms(parameters, name + "self_attn." + which, spec.head_width,
                             spec.norm_epsilon);
  };
  query_norm_ = norm("q_norm");
  key_norm_ = norm("k_norm");
}

std::size_t LlamaAttention::saved(std::size_t sequences, std::size_t rows) const {
  const std::size_t queries = aligned_floats(rows * heads_.query_width());
  const std::size_t keys = aligned_floats(rows * heads_.key_value_width());
  const std::size_t norms = query_norm_ ? queries + keys + Norm::saved(rows * heads_.heads) +
                                              Norm::saved(rows * heads_.key_value_heads)
                                        : 0;
  return Norm::saved(rows) + 2 * queries + 2 * keys +
         aligned_floats(heads_.probabilities(sequences)) + norms;
}

std::size_t LlamaAttention::scratch(std::size_t rows) const {
  return 2 * aligned_floats(rows * width()) + 2 * aligned_floats(rows * heads_.query_width()) +
         2 * aligned_floats(rows * heads_.key_value_width()) + aligned_floats(heads_.scratch());
}

LlamaAttention::Saved LlamaAttention::carve(float* saved, const Pass& pass) const {
  Carver kept(saved);
  Saved s;
  s.norm = kept.take(Norm::saved(pass.rows));
  s.queries = kept.take(pass.rows * heads_.query_width());
  s.keys = kept.take(pass.rows * heads_.key_value_width());
  s.values = kept.take(pass.rows * heads_.key_value_width());
  s.probabilities = kept.take(heads_.probabilities(pass.sequences));
  s.attended = kept.take(pass.rows * heads_.query_width());
  s.plain_queries = s.queries, s.plain_keys = s.keys;
  s.query_norm = s.key_norm = nullptr;
  if (!query_norm_) return s;
  s.plain_queries = kept.take(pass.rows * heads_.query_width());
  s.plain_keys = kept.take(pass.rows * heads_.key_value_width());
  s.query_norm = kept.take(Norm::saved(pass.rows * heads_.heads));
  s.key_norm = kept.take(Norm::saved(pass.rows * heads_.key_value_heads));
  return s;
}

void LlamaAttention::turn(const Pass& pass, bool back, float* queries, float* keys) const {
  for (std::size_t r = 0; r < pass.rows; ++r) {
    const std::size_t position = r % heads_.context;
    rotary_->turn(pass.kernels, position, heads_.heads, back, queries + r * heads_.query_width());
    rotary_->turn(pass.kernels, position, heads_.key_value_heads, back,
                  keys + r * heads_.key_value_width());
  }
}

void LlamaAttention::forward(Pass& pass, const float* in, float* out, float* saved) const {
  const OpenPart open(pass, pass.part_of(norm_.gain));
  const Saved kept = carve(saved, pass);
  float* const normed = pass.scratch;
  norm_.forward(pass, in, normed, kept.norm);
  queries_.forward(pass, normed, kept.plain_queries);
  keys_.forward(pass, normed, kept.plain_keys);
  values_.forward(pass, normed, kept.values);
  if (query_norm_) {
    query_norm_->forward(pass, kept.plain_queries, kept.queries, kept.query_norm, heads_.heads);
    key_norm_->forward(pass, kept.plain_keys, kept.keys, kept.key_norm, heads_.key_value_heads);
  }
  turn(pass, /*back=*/false, kept.queries, kept.keys);
  heads_.forward(pass, kept.rows(heads_), kept.probabilities, kept.attended);
  project_.forward(pass, kept.attended, out, /*add=*/in);
}

void LlamaAttention::backward(Pass& pass, const float* in, const float*, float* saved,
                              const float* d_out, float* d_in) const {
  const OpenPart open(pass, pass.part_of(norm_.gain));
  OpenGradient d_open(pass, pass.part_of(norm_.gain), /*use=*/0);
  const Saved kept = carve(saved, pass);
  Carver scratch(pass.scratch);
  float* const normed = scratch.take(pass.rows * width());
  float* const d_normed = scratch.take(pass.rows * width());
  float* const d_attended = scratch.take(pass.rows * heads_.query_width());
  float* const d_queries = scratch.take(pass.rows * heads_.query_width());
  float* const d_keys = scratch.take(pass.rows * heads_.key_value_width());
  float* const d_values = scratch.take(pass.rows * heads_.key_value_width());
  float* const d_scores = scratch.take(heads_.scratch());
  project_.backward_parameters(pass, kept.attended, d_out);
  project_.backward_input(pass, d_out, d_attended);
  heads_.backward(pass, kept.rows(heads_), kept.probabilities, d_attended,
                  {d_queries, d_keys, d_values, heads_.query_width(), heads_.key_value_width()},
                  d_scores);
  turn(pass, /*back=*/true, d_queries, d_keys);
  if (query_norm_) {
    query_norm_->backward(pass, kept.plain_queries, kept.query_norm, d_queries, /*add=*/nullptr,
                          d_queries, heads_.heads);
    key_norm_->backward(pass, kept.plain_keys, kept.key_norm, d_keys, /*add=*/nullptr, d_keys,
                        heads_.key_value_heads);
  }
  norm_.forward(pass, in, normed, kept.norm);
  queries_.backward_parameters(pass, normed, d_queries);
  keys_.backward_parameters(pass, normed, d_keys);
  values_.backward_parameters(pass, normed, d_values);
  queries_.backward_input(pass, d_queries, d_normed);
  keys_.backward_input(pass, d_keys, d_normed, /*add=*/d_normed);
  values_.backward_input(pass, d_values, d_normed, /*add=*/d_normed);
  norm_.backward(pass, in, kept.norm, d_normed, /*add=*/d_out, d_in);
  d_open.end();
}

LlamaFeedForward::LlamaFeedForward(const LlamaSpec& spec, std::uint32_t index,
                                   Parameters& parameters) {
  parameters.begin_part();
  const std::string name = layer_name(index);
  const Initial initial{.deviation = kLlamaDeviation};
  norm_ = Norm::declare_rms(parameters, name + "post_attention_layernorm", spec.width,
                            spec.norm_epsilon);
  const auto linear = [&](const char* which, std::size_t in, std::size_t out, Initial first) {
    return Linear::declare(parameters, name + "mlp." + which, in, out, first, std::nullopt,
                           Weights::kOutIn);
  };
  gate_ = linear("gate_proj", spec.width, spec.feed_forward, initial);
  up_ = linear("up_proj", spec.width, spec.feed_forward, initial);
  down_ = linear("down_proj", spec.feed_forward, spec.width, residual(spec));
}

std::size_t LlamaFeedForward::saved(std::size_t, std::size_t rows) const {
  return Norm::saved(rows) + 2 * aligned_floats(rows * gate_.out);
}

std::size_t LlamaFeedForward::scratch(std::size_t rows) const {
  return 2 * aligned_floats(rows * width()) + 3 * aligned_floats(rows * gate_.out);
}

void LlamaFeedForward::forward(Pass& pass, const float* in, float* out, float* saved) const {
  const OpenPart open(pass, pass.part_of(norm_.gain));
  Carver scratch(pass.scratch), kept(saved + Norm::saved(pass.rows));
  float* const normed = scratch.take(pass.rows * width());
  float* const active = scratch.take(pass.rows * gate_.out);
  float* const gate = kept.take(pass.rows * gate_.out);
  float* const up = kept.take(pass.rows * gate_.out);
  norm_.forward(pass, in, normed, saved);
  gate_.forward(pass, normed, gate);
  up_.forward(pass, normed, up);
  pass.kernels.swiglu(pass.rows * gate_.out, gate, up, active);
  down_.forward(pass, active, out, /*add=*/in);
}

void LlamaFeedForward::backward(Pass& pass, const float* in, const float*, float* saved,
                                const float* d_out, float* d_in) const {
  const OpenPart open(pass, pass.part_of(norm_.gain));
  OpenGradient d_open(pass, pass.part_of(norm_.gain), /*use=*/0);
  Carver scratch(pass.scratch), kept(saved + Norm::saved(pass.rows));
  const std::size_t n = pass.rows * gate_.out;
  float* const normed = scratch.take(pass.rows * width());
  float* const d_normed = scratch.take(pass.rows * width());
  float* const active = scratch.take(n);
  float* const d_gate = scratch.take(n);
  float* const d_up = scratch.take(n);
  const float* const gate = kept.take(n);
  const float* const up = kept.take(n);
  float* const d_active = d_up;
  down_.backward_input(pass, d_out, d_active);
  pass.kernels.swiglu_backward(n, gate, up, d_active, d_gate, d_up, active);
  down_.backward_parameters(pass, active, d_out);
  norm_.forward(pass, in, normed, saved);
  gate_.backward_parameters(pass, normed, d_gate);
  up_.backward_parameters(pass, normed, d_up);
  gate_.backward_input(pass, d_gate, d_normed);
  up_.backward_input(pass, d_up, d_normed, /*add=*/d_normed);
  norm_.backward(pass, in, saved, d_normed, /*add=*/d_out, d_in);
  d_open.end();
}

}  // namespace starling::kernels
