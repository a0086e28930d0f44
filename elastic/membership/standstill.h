#pragma once
// Workers that are heard and hold up all others (docs/design.md, section 6, "A member that holds
// up all others"). A worker's heartbeats come from the thread that obeys the protocol. Its threads that
// compute, read or keep the state may hang meanwhile, in a file system or a device say.
//
// Functions of what the roster and the progress of the epoch say; they own nothing.

#include <cstdint>
#include <string>
#include <vector>

#include "elastic/membership/epoch_progress.h"
#include "elastic/membership/group.h"
#include "elastic/membership/leader_config.h"
#include "elastic/membership/roster.h"

namespace starling::elastic {

struct Standstill {
  std::vector<Incarnation> by;    // none: the epoch gets on, or the last plan is not entered yet
  std::uint64_t since_ms = 0;     // all of them stand still, and all others wait, since then
  std::uint64_t patience_ms = 0;  // how long others wait; the warning comes after a quarter
  // They are to be left out: at once if the others have all that they have, else after
  // state_timeout and at any price, as a silent worker is.
  bool too_long = false;
  bool at_any_price = false;
};

// Call it while an epoch runs and nothing is formed or proposed.
Standstill standstill(const LeaderConfig& config, const Group& group, const Roster& roster,
                      const EpochProgress& progress);

// The warning about one of `still.by`, and the cause of a plan that leaves all of these workers out.
std::string warning_of(const Standstill& still, const Incarnation& who, const Group& group,
                       const Roster& roster);
std::string cause_of(const Standstill& still, const Roster& roster);

}  // namespace starling::elastic
