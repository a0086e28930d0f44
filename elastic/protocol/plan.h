#pragma once
// Questions that workers and the leader both ask of a plan.

#include <cstdint>
#include <vector>

#include "core/wire/messages.h"

namespace starling::elastic {

// Rank of a worker's life in a plan, or kNoRank.
Rank rank_in(const Plan& plan, const Incarnation& who);

// Rank of each of the M micro-batches when nothing else was dealt: consecutive runs, equal up to
// one, over the members that are not draining (over all, if all are).
std::vector<Rank> equal_shares(const std::vector<Member>& members, std::uint32_t micro_batches);

}  // namespace starling::elastic
