// `starling keys`: the key file of a job.

#include "core/base/keys.h"

#include <cstdio>

#include "tools/starling/commands.h"
#include "tools/starling/exit.h"

namespace starling::tools {

int keys(const KeysCommand& command) {
  const KeyRing ring = KeyRing::generate(command.coordinators, command.workers);
  if (auto saved = ring.save(command.out); !saved) return fail(saved.error());
  std::printf("%s: keys of %u coordinators, %u workers and one client\n", command.out.c_str(),
              command.coordinators, command.workers);
  return 0;
}

}  // namespace starling::tools
