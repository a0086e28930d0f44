#include "core/job/groups.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "core/base/check.h"

namespace starling {
namespace {

bool is_pattern(std::string_view text) {
  return text.find_first_of("*?") != std::string_view::npos;
}

// What the groups say of each tensor, and the first of their patterns that says nothing of any.
struct Found {
  std::vector<UpdateGroup> groups;
  std::vector<std::size_t> of_tensor;
  const std::string* unmatched = nullptr;
};

Found found(const OptimizerSpec& optimizer, const std::vector<TensorPlace>& tensors) {
  std::vector<UpdateGroup> of_each;
  std::map<std::string_view, std::size_t> by_name;
  for (const TensorPlace& place : tensors) {
    by_name.emplace(place.spec.name, of_each.size());
    of_each.push_back({1, place.spec.shape.size() >= 2 ? optimizer.weight_decay : 0});
  }
  Found all{.groups = {{1, 0}, {1, optimizer.weight_decay}}, .of_tensor = {}};
  for (const GroupSpec& group : optimizer.groups) {
    const auto set = [&](std::size_t tensor) {
      of_each[tensor].rate_factor = group.rate_factor.value_or(of_each[tensor].rate_factor);
      of_each[tensor].weight_decay = group.weight_decay.value_or(of_each[tensor].weight_decay);
      of_each[tensor].statistics |= group.statistics;
    };
    for (const std::string& text : group.tensors) {
      bool one = false;
      if (const auto it = by_name.find(text); it != by_name.end()) {
        set(it->second);
        one = true;
      } else if (is_pattern(text)) {
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          if (!matches(text, tensors[t].spec.name)) continue;
          set(t);
          one = true;
        }
      }
      if (!one && all.unmatched == nullptr) all.unmatched = &text;
    }
  }
  for (UpdateGroup& group : of_each) {
    if (group.statistics) group = {.rate_factor = 1, .weight_decay = 0, .statistics = true};
    const auto it = std::find(all.groups.begin(), all.groups.end(), group);
    all.of_tensor.push_back(static_cast<std::size_t>(it - all.groups.begin()));
    if (it == all.groups.end()) all.groups.push_back(group);
  }
  return all;
}

}  // namespace

OptimizerSpec local_optimizer(const Job& job) {
  OptimizerSpec local = job.local.optimizer;
  std::ranges::copy_if(job.optimizer.groups, std::back_inserter(local.groups),
                       &GroupSpec::statistics);
  return local;
}

bool matches(std::string_view pattern, std::string_view name) {
  // Backtracks to the last star alone: a shorter run of an earlier one can match nothing more.
  std::size_t p = 0, n = 0, after_star = std::string_view::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      from = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (after_star != std::string_view::npos) {
      p = after_star;
      n = ++from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

UpdateGroups update_groups(const OptimizerSpec& optimizer,
                           const std::vector<TensorPlace>& tensors) {
  Found all = found(optimizer, tensors);
  STARLING_CHECK(all.groups.size() <= kGroupsMax);
  UpdateGroups groups{std::move(all.groups), {}};
  for (const std::size_t group : all.of_tensor)
    groups.of_tensor.push_back(static_cast<std::uint8_t>(group));
  return groups;
}

Result<> check_groups(const OptimizerSpec& optimizer, const std::vector<TensorPlace>& tensors,
                      const std::string& section) {
  if (optimizer.groups.empty()) return ok();
  constexpr std::size_t kShown = 3;
  const Found all = found(optimizer, tensors);
  if (all.unmatched != nullptr) {
    std::string names;
    for (std::size_t t = 0; t < std::min(kShown, tensors.size()); ++t)
      names += (t == 0 ? "" : ", ") + tensors[t].spec.name;
    if (tensors.size() > kShown) names += ", ..";
    return Error(Code::kBadInput, "no tensor of the model is \"" + *all.unmatched +
                                      "\", expected a name or pattern of " + names + "; [" +
                                      section + "].groups");
  }
  if (all.groups.size() > kGroupsMax)
    return Error(Code::kBadInput, "groups must make at most " + std::to_string(kGroupsMax) +
                                      " different pairs of rate and weight decay, make " +
                                      std::to_string(all.groups.size()) + "; [" + section +
                                      "].groups");
  return ok();
}

Result<> check_groups(const Job& job, const std::vector<TensorPlace>& tensors) {
  STARLING_TRY(check_groups(job.optimizer, tensors));
  if (!job.local.on()) return ok();
  return check_groups(local_optimizer(job), tensors, "local");
}

}  // namespace starling
