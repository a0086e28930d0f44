#pragma once
// How a worker gets in: by a key of a run, of a token or of a file, or by a token of an identity provider.

#include <string>

#include "core/base/result.h"
#include "tools/starling/commands.h"
#include "tools/starling/group.h"

namespace starling::tools {

// A WorkerDoor is what the command says of joining.
struct WorkerDoor {
  std::string addresses;  // of the coordinators
  TakenKey key;
};

// Errors: kBadInput  no key is there, or it is in use; what the command says does not fit together.
Result<WorkerDoor> door_of(const WorkerCommand& command);

}  // namespace starling::tools
