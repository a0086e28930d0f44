#pragma once
// Sums is what a step's reduction reads and writes, as plain views. The grid owns the arrays
// (kernels/grid); the caller of a Reduce puts the views together.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/base/proof.h"
#include "core/base/side_entry.h"
#include "core/job/layout.h"

namespace starling::collectives {

struct Sums {
  const Layout* layout = nullptr;
  // Read only (R2); those of a bucket are final once it is contributed.
  std::span<const std::int32_t> accumulators;     // [layout.elements()]
  std::span<const ProofLanes> accumulator_lanes;  // [layout.segments()]
  // Written for the segments that this rank holds; the rest is left as it is.
  std::span<std::int32_t> totals;              // [layout.elements()]
  std::span<ProofLanes> total_lanes;           // [layout.segments()]
  std::vector<SideEntry>* received = nullptr;  // all members' entries of held segments, own too
  // Bits of an element of one micro-batch (NumbersSpec::grid_bits), for sums that travel packed (pack.h); 0: as words.
  std::uint32_t grid_bits = 0;
};

}  // namespace starling::collectives
