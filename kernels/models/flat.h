#pragma once
// These keep parameters and gradients of all parts in flat arrays, for passes part by part.

#include <cstdint>
#include <span>
#include <vector>

#include "core/job/layout.h"
#include "kernels/layers/parts.h"

namespace starling::kernels {

// Threads: any. Borrows both.
class FlatSource : public PartSource {
 public:
  FlatSource(const Layout& layout, const float* parameters)
      : layout_(layout), parameters_(parameters) {}
  const float* acquire(PartId part) override { return parameters_ + layout_.parts()[part].first(); }
  void release(PartId) override {}

 private:
  const Layout& layout_;
  const float* const parameters_;  // [layout.elements()]
};

// Adds up the uses of each part. Overwrites `gradient` [layout.elements()]. Borrows both.
class FlatSink : public GradientSink {
 public:
  FlatSink(const Layout& layout, std::span<float> gradient);
  float* begin(PartId part, std::uint32_t use) override;
  void end(PartId part, std::uint32_t use) override;

 private:
  std::span<float> of(PartId part) const;

  const Layout& layout_;
  const std::span<float> gradient_;
  std::vector<bool> written_;   // by part: a use has come
  std::vector<float> another_;  // use of a part that has one
};

}  // namespace starling::kernels
