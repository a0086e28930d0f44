#pragma once
// Roles decide which messages a key may send to a coordinator (P8): a key lets its
// owner say what its role needs and nothing else, whatever the message itself claims.

#include "core/base/keys.h"
#include "core/wire/messages.h"

namespace starling::actors {

bool may_say(Role role, const Message& message);

}  // namespace starling::actors
