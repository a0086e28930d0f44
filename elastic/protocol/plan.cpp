#include "elastic/protocol/plan.h"

namespace starling::elastic {

Rank rank_in(const Plan& plan, const Incarnation& who) {
  for (Rank r = 0; r < plan.members.size(); ++r)
    if (plan.members[r].who == who) return r;
  return kNoRank;
}

std::vector<Rank> equal_shares(const std::vector<Member>& members, std::uint32_t micro_batches) {
  std::vector<Rank> working;
  for (Rank r = 0; r < members.size(); ++r)
    if (!members[r].draining) working.push_back(r);
  if (working.empty())
    for (Rank r = 0; r < members.size(); ++r) working.push_back(r);
  std::vector<Rank> shares(micro_batches);
  for (std::uint64_t m = 0; m < micro_batches; ++m)
    shares[m] = working[m * working.size() / micro_batches];
  return shares;
}

}  // namespace starling::elastic
