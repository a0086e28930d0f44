#pragma once
// BlockGroups has what jobs of an optimizer read about each block, in the device's memory.

#include <cstdint>
#include <vector>

#include "core/job/groups.h"
#include "core/job/layout.h"
#include "kernels/device/array.h"

namespace starling::kernels {

// The arrays are [layout.blocks()].
struct BlockGroups {
  BlockGroups(const OptimizerSpec& optimizer, const Layout& layout, Device& device, Queue& queue);

  Array<std::uint16_t> used;     // real elements
  Array<std::uint16_t> in_norm;  // those of them in the gradient's norm: none of statistics
  Array<std::uint8_t> group_of;  // which of `groups` the block's tensor has
  std::vector<UpdateGroup> groups;
};

}  // namespace starling::kernels
