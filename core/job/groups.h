#pragma once
// Groups of tensors that are updated otherwise: `groups` in a job file's [optimizer]. A function of
// the job and the names of its tensors only, so every worker computes the same.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling {

// Tensors of one are updated alike.
struct UpdateGroup {
  double rate_factor = 1;
  double weight_decay = 0;
  // Running statistics of what the model computes (BatchNorm's): their gradient is the difference, old less
  // new, and the step subtracts the mean of it. No rate, decay, clipping or moment changes it, and the
  // gradient's norm is without it.
  bool statistics = false;
  bool operator==(const UpdateGroup&) const = default;
};
inline constexpr std::size_t kGroupsMax = 64;  // of different ones

struct UpdateGroups {
  std::vector<UpdateGroup> groups;  // the first two: no group of the job, without and with decay
  std::vector<std::uint8_t> of_tensor;  // which of them
};

// Returns the optimizer of local steps, with the statistics that [optimizer] names among its groups.
OptimizerSpec local_optimizer(const Job& job);

// Whether a name has the form of the pattern: '*' stands for any characters, '?' for one.
bool matches(std::string_view pattern, std::string_view name);

// Requires that check_groups() of its job has been passed, or a layout that has none of the groups' tensors.
UpdateGroups update_groups(const OptimizerSpec& optimizer, const std::vector<TensorPlace>& tensors);

// Errors: kBadInput  no tensor has the form of a pattern of [optimizer], or of that section of a job, or there are more
// than kGroupsMax groups.
Result<> check_groups(const OptimizerSpec& optimizer, const std::vector<TensorPlace>& tensors,
                      const std::string& section = "optimizer");
// Of all optimizers of the job.
Result<> check_groups(const Job& job, const std::vector<TensorPlace>& tensors);

}  // namespace starling
