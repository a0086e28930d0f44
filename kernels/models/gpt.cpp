#include "kernels/layers/gpt.h"

#include "kernels/layers/language.h"
#include "kernels/models/chain.h"
#include "kernels/models/kinds.h"

namespace starling::kernels {
namespace {

Result<> check_spec(const GptSpec& spec) {
  STARLING_TRY(in_range("layers", spec.layers, kLayersMax));
  STARLING_TRY(in_range("width", spec.width, kContextMax));
  STARLING_TRY(in_range("heads", spec.heads, spec.width));
  STARLING_TRY(in_range("context", spec.context, kContextMax));
  STARLING_TRY(in_range("vocabulary", spec.vocabulary, kDimensionMax));
  if (spec.width % spec.heads != 0)
    return Error(Code::kBadInput, "width " + std::to_string(spec.width) +
                                      " is not a multiple of heads " + std::to_string(spec.heads) +
                                      "; [model]");
  const std::uint64_t c = spec.width;
  return in_range("number of parameters",
                  (spec.vocabulary + spec.context) * c + spec.layers * 12 * c * c, kElementsMax);
}

}  // namespace

MadeModel make(const GptSpec& spec, const KernelTable& kernels, bool recompute) {
  STARLING_TRY(check_spec(spec));
  Parameters parameters(spec.lora);
  std::vector<std::unique_ptr<Layer>> layers;
  auto embedding = std::make_unique<Embedding>(embedding_shape(spec), parameters);
  const std::size_t wte = embedding->tokens_tensor();
  layers.push_back(std::move(embedding));
  for (std::uint32_t i = 0; i < spec.layers; ++i) {
    layers.push_back(std::make_unique<AttentionBlock>(spec, i, parameters));
    layers.push_back(std::make_unique<FeedForwardBlock>(spec, i, parameters));
  }
  parameters.begin_part();
  const Norm norm = Norm::declare(parameters, "ln_f", spec.width);
  layers.push_back(std::make_unique<LanguageHead>(spec.vocabulary, norm, wte));
  STARLING_TRY(adapts_some(parameters));
  return make_chain(kernels, recompute, spec.input(), std::move(parameters), std::move(layers));
}

}  // namespace starling::kernels
