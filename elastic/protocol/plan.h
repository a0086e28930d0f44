#pragma once
// A question that workers and the leader both ask of a plan.

#include "core/wire/messages.h"

namespace starling::elastic {

// Rank of a worker's life in a plan, or kNoRank.
Rank rank_in(const Plan& plan, const Incarnation& who);

}  // namespace starling::elastic
