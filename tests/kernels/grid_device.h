#pragma once
// What tests of the grid do on a device; every one of them runs on each (each_device.h).

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/device/array.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/totals.h"
#include "tests/kernels/each_device.h"

namespace starling::kernels {

// Adds values of the host's to accumulators on a device; every use of a part gives the same.
inline Accumulators::Added add(Accumulators& accumulators, Device& device,
                               std::span<const float> gradient,
                               std::span<const std::int16_t> exponents, std::uint64_t seed,
                               Version step, MicroBatch m) {
  const auto queue = device.make_queue();
  Array<float> g(device, gradient.size());
  Array<std::int16_t> x(device, exponents.size());
  g.copy_in(*queue, 0, gradient);
  x.copy_in(*queue, 0, exponents);
  auto adding = accumulators.begin(*queue, x.data(), seed, step, m);
  for (PartId p = 0; p < accumulators.layout().parts().size(); ++p) {
    const Part& part = accumulators.layout().parts()[p];
    for (std::uint32_t use = 0; use < part.uses; ++use) adding.add(p, use, g.data() + part.first());
  }
  return adding.finish();
}

// What has been added up.
inline std::vector<std::int32_t> sums_of(const Layout& layout, Accumulators& accumulators) {
  accumulators.mirror({0, layout.segments()});
  return {accumulators.sums().begin(), accumulators.sums().end()};
}

// What a reduce over one worker does: its sums and lanes become the totals.
inline void reduce_alone(const Layout& layout, Accumulators& accumulators, Totals& totals) {
  std::ranges::copy(sums_of(layout, accumulators), totals.sums().begin());
  std::ranges::copy(accumulators.lanes(), totals.lanes().begin());
  totals.take(segment_ids({0, layout.segments()}));
}

}  // namespace starling::kernels
