// `starling coordinator`: one member of the Raft group as a process of its own.

#include "actors/coordinator/coordinator.h"

#include "tools/starling/commands.h"
#include "tools/starling/exit.h"

namespace starling::tools {

int coordinator(const CoordinatorCommand& command) {
  return fail(2, "later" + command.job);
}

}  // namespace starling::tools
