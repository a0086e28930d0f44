#pragma once
// The resume rule R12 and what follows from it: from the members' reports to the version at which
// the next epoch begins, the point of the step loop, and the shares of its members. Pure functions.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/wire/messages.h"
#include "elastic/membership/group.h"
#include "elastic/protocol/bugs.h"

namespace starling::elastic {

struct Reporter {
  Incarnation who;
  Report report;
};

struct Resume {
  Version base = 0;
  BeginAt begin = BeginAt::kCompute;
  bool fresh = false;  // no member needs a state: it is built from the seed or from a checkpoint
};

// Takes the reports that count (R11), joiners' among them (version kNoVersion). Errors: kInternal
// if reports contradict each other, which only a bug can cause; kStateLost if no reporter has a
// state and the group had left the start version.
Result<Resume> resume_rule(const std::vector<Reporter>& reporters, const Group& group,
                           const Bugs& bugs);

// Whether the report's sender can be a member of an epoch that begins at `base`. A leaver that
// switched out of the epoch before the last cannot, once the remaining members have passed another
// vote: its report counts for the fence alone (R11).
bool goes_on(const Report& report, Version base);

// Whether the report's copy of this segment is current for an epoch that begins at `base`.
bool current_copy(const Report& report, SegmentId segment, Version base);

// Whether one of these reports has a current copy of the segment, or of every segment.
bool copied(const std::vector<Reporter>& reporters, SegmentId segment, Version base);
bool all_copied(const std::vector<Reporter>& reporters, std::uint32_t segments, Version base);

// Returns the reporter's index for each micro-batch of step `base`. Reporters at `base` keep their
// share; the rest goes to those that can do it first, by the speeds they report. Errors: kInternal
// if two kept shares overlap.
Result<std::vector<Rank>> deal_shares(const std::vector<Reporter>& reporters,
                                      const std::vector<Member>& members, Version base,
                                      std::uint32_t micro_batches, const Bugs& bugs);

}  // namespace starling::elastic
