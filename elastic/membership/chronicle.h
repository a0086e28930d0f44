#pragma once
// What the log says of workers and epochs, for coordinators that do not lead: the one that does
// tells it with what it measured, and may be lost before. Pure.

#include <vector>

#include "core/observe/event.h"
#include "core/wire/messages.h"
#include "elastic/membership/group.h"

namespace starling::elastic {

// Of a valid entry that the group has just taken; nothing of it is measured.
std::vector<Event> told_of(const Group& group, const Entry& entry);

}  // namespace starling::elastic
