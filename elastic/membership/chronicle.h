#pragma once
// What the log says of workers and epochs, for coordinators that do not lead: the leader tells the
// same with the times that it measured, but may be lost before that. Pure.

#include <vector>

#include "core/observe/event.h"
#include "core/wire/messages.h"
#include "elastic/membership/group.h"

namespace starling::elastic {

// The events that a valid entry implies, after Group::apply() took it. All times are empty.
std::vector<Event> told_of(const Group& group, const Entry& entry);

}  // namespace starling::elastic
