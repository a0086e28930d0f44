#include "kernels/models/flat.h"

#include "core/base/check.h"

namespace starling::kernels {

FlatSink::FlatSink(const Layout& layout, std::span<float> gradient)
    : layout_(layout), gradient_(gradient), written_(layout.parts().size()) {
  STARLING_CHECK(gradient.size() == layout.elements());
}

std::span<float> FlatSink::of(PartId part) const {
  const Part& p = layout_.parts()[part];
  return gradient_.subspan(p.first(), p.elements());
}

float* FlatSink::begin(PartId part, std::uint32_t) {
  if (!written_[part]) return of(part).data();
  another_.resize(of(part).size());
  return another_.data();
}

void FlatSink::end(PartId part, std::uint32_t) {
  if (written_[part]) {
    const std::span<float> sum = of(part);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += another_[i];
  }
  written_[part] = true;
}

}  // namespace starling::kernels
