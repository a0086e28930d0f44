#include "kernels/layers/dense.h"
#include "kernels/models/chain.h"
#include "kernels/models/kinds.h"

namespace starling::kernels {
namespace {

Result<> check_spec(const MlpSpec& spec) {
  STARLING_TRY(in_range("number of dense layers", spec.sizes.empty() ? 0 : spec.sizes.size() - 1,
                        kLayersMax));
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < spec.sizes.size(); ++i) {
    STARLING_TRY(in_range("size", spec.sizes[i], kDimensionMax));
    if (i > 0) elements += std::uint64_t{spec.sizes[i - 1]} * spec.sizes[i];
  }
  return in_range("number of parameters", elements, kElementsMax);
}

}  // namespace

MadeModel make(const MlpSpec& spec, const KernelTable& kernels, bool recompute) {
  STARLING_TRY(check_spec(spec));
  Parameters parameters;
  std::vector<std::unique_ptr<Layer>> layers;
  const std::size_t dense = spec.sizes.size() - 1;
  for (std::uint32_t i = 0; i < dense; ++i)
    layers.push_back(std::make_unique<Dense>(spec.sizes[i], spec.sizes[i + 1], i,
                                             /*relu=*/i + 1 < dense, parameters));
  layers.push_back(std::make_unique<ClassifierLoss>(spec.sizes.back()));
  return make_chain(kernels, recompute, spec.input(), std::move(parameters), std::move(layers));
}

}  // namespace starling::kernels
