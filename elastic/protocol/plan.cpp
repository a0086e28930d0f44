#include "elastic/protocol/plan.h"

namespace starling::elastic {

Rank rank_in(const Plan& plan, const Incarnation& who) {
  for (Rank r = 0; r < plan.members.size(); ++r)
    if (plan.members[r].who == who) return r;
  return kNoRank;
}

}  // namespace starling::elastic
