#include "kernels/layers/llama.h"

#include "kernels/layers/language.h"
#include "kernels/models/chain.h"
#include "kernels/models/kinds.h"

namespace starling::kernels {
namespace {

Result<> check_spec(const LlamaSpec& spec) {
  STARLING_TRY(in_range("layers", spec.layers, kLayersMax));
  STARLING_TRY(in_range("heads", spec.heads, kContextMax));
  STARLING_TRY(in_range("key_value_heads", spec.key_value_heads, spec.heads));
  STARLING_TRY(in_range("head_width", spec.head_width, kContextMax));
  STARLING_TRY(in_range("width", spec.width, kContextMax));
  STARLING_TRY(in_range("feed_forward", spec.feed_forward, kDimensionMax));
  STARLING_TRY(in_range("context", spec.context, kContextMax));
  STARLING_TRY(in_range("vocabulary", spec.vocabulary, kDimensionMax));
  if (spec.heads % spec.key_value_heads != 0)
    return bad_input("heads " + std::to_string(spec.heads) +
                     " is not a multiple of key_value_heads " +
                     std::to_string(spec.key_value_heads) + "; [model]");
  if (spec.head_width % 2 != 0)
    return bad_input("head_width " + std::to_string(spec.head_width) + " is odd; [model]");
  STARLING_TRY(
      in_range("heads times head_width", std::uint64_t{spec.heads} * spec.head_width, kContextMax));
  const std::uint64_t c = spec.width;
  return in_range(
      "number of parameters",
      2 * spec.vocabulary * c + spec.layers * c *
                                    (2 * spec.query_width() + 2 * spec.key_value_width() +
                                     3 * std::uint64_t{spec.feed_forward}),
      kElementsMax);
}

}  // namespace

MadeModel make(const LlamaSpec& spec, const KernelTable& kernels, bool recompute) {
  STARLING_TRY(check_spec(spec));
  Parameters parameters(spec.lora);
  std::vector<std::unique_ptr<Layer>> layers;
  auto embedding = std::make_unique<Embedding>(embedding_shape(spec), parameters);
  std::size_t table = embedding->tokens_tensor();
  layers.push_back(std::move(embedding));
  const auto rotary = std::make_shared<const Rotary>(spec);
  for (std::uint32_t i = 0; i < spec.layers; ++i) {
    layers.push_back(std::make_unique<LlamaAttention>(spec, i, rotary, parameters));
    layers.push_back(std::make_unique<LlamaFeedForward>(spec, i, parameters));
  }
  parameters.begin_part();
  const Norm norm = Norm::declare_rms(parameters, "norm", spec.width, spec.norm_epsilon);
  if (!spec.tied_embeddings)
    table = parameters.add_table("lm_head.weight", {spec.vocabulary, spec.width},
                                 {.deviation = kLlamaDeviation}, /*uses=*/1);
  layers.push_back(std::make_unique<LanguageHead>(spec.vocabulary, norm, table));
  STARLING_TRY(adapts_some(parameters));
  return make_chain(kernels, recompute, spec.input(), std::move(parameters), std::move(layers));
}

}  // namespace starling::kernels
