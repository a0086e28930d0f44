#pragma once
// Questions that workers and the leader both ask of a plan.

#include <optional>
#include <vector>

#include "core/wire/messages.h"

namespace starling::elastic {

// Rank of a worker's life in a plan; none where it is no member.
std::optional<Rank> rank_in(const Plan& plan, const Incarnation& who);

// Per segment, whether this rank holds it at the beginning of the plan's epoch.
std::vector<bool> held_by(const Plan& plan, Rank rank);

// Per rank, the segments that it holds in the plan's epoch: at its beginning, or after all its moves.
std::vector<std::vector<bool>> copies_of(const Plan& plan, bool moved);

}  // namespace starling::elastic
