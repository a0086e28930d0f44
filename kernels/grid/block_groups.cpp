#include "kernels/grid/block_groups.h"

#include <utility>

namespace starling::kernels {

BlockGroups::BlockGroups(const OptimizerSpec& optimizer, const Layout& layout, Device& device,
                         Queue& queue)
    : used(device, layout.blocks()),
      in_norm(device, layout.blocks()),
      group_of(device, layout.blocks()) {
  UpdateGroups found = update_groups(optimizer, layout.tensors());
  groups = std::move(found.groups);
  std::vector<std::uint16_t> real, counted;
  std::vector<std::uint8_t> group;
  for (std::uint32_t b = 0; b < layout.blocks(); ++b) {
    real.push_back(static_cast<std::uint16_t>(layout.used(b)));
    group.push_back(found.of_tensor[layout.tensor_of(b)]);
    counted.push_back(groups[group.back()].statistics ? 0 : real.back());
  }
  used.copy_in(queue, 0, real);
  in_norm.copy_in(queue, 0, counted);
  group_of.copy_in(queue, 0, group);
  queue.wait();
}

}  // namespace starling::kernels
