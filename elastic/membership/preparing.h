#pragma once
// The prepared plan that is to follow the last one while its epoch runs (docs/design.md, section 6,
// "Prepared changes stop nobody"; R15): the joiners that the plan lets in, the leavers that it drains
// or releases, the segments that it moves, and whether moved copies now become the owners' copies.
//
// A function of what the log, the roster and the progress of the epoch say; nothing is kept.

#include <optional>

#include "core/wire/messages.h"
#include "elastic/membership/epoch_progress.h"
#include "elastic/membership/group.h"
#include "elastic/membership/leader_config.h"
#include "elastic/membership/roster.h"

namespace starling::elastic {

// Call it while an epoch runs and nothing is formed or proposed. The plan has no id: the leader
// gives it one. None: there is nothing to change, it is not time for it yet, or no other member can
// hold what a leaver has.
std::optional<Plan> prepare(const LeaderConfig& config, const Group& group, Roster& roster,
                            const EpochProgress& progress);

}  // namespace starling::elastic
