#pragma once
// What every holder of a RaftMembers relies on, and its bytes in a coordinator's log.

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/wire/messages.h"

namespace starling {

// Whether it is a group: 1 to limits::kVoters voters in ascending order, all places below `next`, which is at most
// limits::kSeats; the learner is no voter, the leaving one is, and not the only member.
bool is_group(const RaftMembers& members);

Bytes encode_members(const RaftMembers& members);  // is_group() (checked)
// Error (kCorrupt): not such bytes, or no group.
Result<RaftMembers> decode_members(ByteView bytes);

}  // namespace starling
