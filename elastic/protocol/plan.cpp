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

std::vector<std::vector<bool>> copies_of(const Plan& plan, bool moved) {
  std::vector<std::vector<bool>> copies(plan.members.size(),
                                        std::vector<bool>(plan.holders.size()));
  for (SegmentId s = 0; s < plan.holders.size(); ++s)
    for (Rank r : plan.holders[s]) copies[r][s] = true;
  if (!moved) return copies;
  for (const Move& move : plan.moves)
    for (const SegmentId s : move.segments) copies[move.target][s] = true;
  return copies;
}

}  // namespace starling::elastic
