#include "kernels/models/adapters.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/job/models/adapter_config.h"

namespace starling::kernels {
namespace {

const TensorPlace& place_of(const Layout& layout, const std::string& name) {
  const auto place = std::ranges::find(layout.tensors(), name,
                                       [](const TensorPlace& each) { return each.spec.name; });
  STARLING_CHECK_MSG(place != layout.tensors().end(), name);
  return *place;
}

std::size_t element(const TensorPlace& place) {
  return std::size_t{place.first_block} * kBlock;
}

}  // namespace

void merge_adapters(const ModelSpec& spec, const KernelTable& kernels, const Layout& adapters,
                    std::span<const float> of_adapters, const Layout& whole,
                    std::span<float> weights) {
  STARLING_CHECK(of_adapters.size() == adapters.elements() && weights.size() == whole.elements());
  const std::string ending = lora_a("");
  const auto scale = static_cast<float>(lora_of(spec).scale());
  std::vector<float> scaled, scratch(kGemmScratch + 16);
  for (const TensorPlace& a : adapters.tensors()) {
    if (!a.spec.name.ends_with(ending)) continue;
    const std::string module = a.spec.name.substr(0, a.spec.name.size() - ending.size());
    const TensorPlace& b = place_of(adapters, lora_b(module));
    const TensorPlace& weight = place_of(whole, module + ".weight");
    const std::size_t rank = a.spec.shape[0], in = a.spec.shape[1], out = b.spec.shape[0];
    scaled.resize(rank * in);
    for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] = scale * of_adapters[element(a) + i];
    const float* const of_b = of_adapters.data() + element(b);
    Gemm g{.k = rank};
    if (is_fan_in_fan_out(spec)) {  // W[in, out] += (scale A)^T B^T
      g.m = in, g.n = out;
      g.a = scaled.data(), g.lda = in, g.a_transposed = true;
      g.b = of_b, g.ldb = rank, g.b_transposed = true;
    } else {  // W[out, in] += B scale A
      g.m = out, g.n = in;
      g.a = of_b, g.lda = rank;
      g.b = scaled.data(), g.ldb = in;
    }
    g.c = weights.data() + element(weight), g.ldc = g.n;
    g.add = g.c, g.ldadd = g.n;
    const auto at = reinterpret_cast<std::uintptr_t>(scratch.data());
    g.scratch = scratch.data() + (64 - at % 64) % 64 / sizeof(float);
    check(g);
    kernels.gemm(g);
  }
}

}  // namespace starling::kernels
