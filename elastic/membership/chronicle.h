#pragma once
// What the log says of workers and epochs, for coordinators that do not lead: the one that does
// tells it with what it measured, and may be lost before. Pure.

#include <vector>

#include "core/wire/messages.h"
#include "elastic/membership/group.h"
#include "elastic/membership/leader.h"

namespace starling::elastic {

// Of a valid entry that the group has just taken. Each has `of_log` set.
std::vector<Observation> told_of(const Group& group, const Entry& entry);

}  // namespace starling::elastic
