// This fault sends SIGKILL to a coordinator; `starling run` starts it again.

#include <signal.h>

#include "tools/chaos/faults/coordinators.h"
#include "tools/chaos/faults/workers.h"

namespace starling::chaos {
namespace {

void begin_coordinator_kill(Disturbance& it) {
  const auto there = whole_coordinators(it);
  if (there.empty()) return;
  const judge::Target target = it.pick(there).front();
  ::kill(target.pid, SIGKILL);
  it.hit("kill -9", {target});
  expect_gone(it, target);
  expect_again(it, target);
}

}  // namespace

constinit const FaultKind faults::kCoordinatorKill{
    .word = "coordinator-kill",
    .keys = {.count = false},
    .impossible = too_few_coordinators,
    .begin = begin_coordinator_kill,
    .shown = {.style = "hurt", .sign = "x", .meaning = "killed", .on_coordinators = true},
};

}  // namespace starling::chaos
