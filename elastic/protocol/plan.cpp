#include "elastic/protocol/plan.h"

#include <algorithm>

namespace starling::elastic {

std::optional<Rank> rank_in(const Plan& plan, const Incarnation& who) {
  for (Rank r = 0; r < plan.members.size(); ++r)
    if (plan.members[r].who == who) return r;
  return std::nullopt;
}

std::vector<bool> held_by(const Plan& plan, Rank rank) {
  std::vector<bool> held;
  for (const auto& ranks : plan.holders)
    held.push_back(std::find(ranks.begin(), ranks.end(), rank) != ranks.end());
  return held;
}

}  // namespace starling::elastic
