// This fault sends SIGKILL to worker processes, `count` of them in one instant.

#include "tools/chaos/faults/numbers.h"
#include "tools/chaos/faults/workers.h"

namespace starling::chaos {
namespace {

void draw_kill(Fault& fault, Numbers& numbers, double) {
  fault.back_s = numbers.seconds(0.3, 3);
}

void begin_kill(Disturbance& it) {
  const DisturbedRun& run = it.run();
  const auto chosen = to_be_gone(it);
  if (chosen.empty()) return;
  if (that_count(run) < run.options.workers_min + chosen.size() && !run.options.last_copies)
    return it.hold_back("too few workers would be left");
  if (!run.options.last_copies && run.cast.last_copies({chosen.begin(), chosen.end()}))
    return it.hold_back("they have the last copies of some state");
  const auto targets = targets_of(chosen);
  for (Player* player : chosen) kill_process(*player);
  it.hit("kill -9", targets);
  for (const judge::Target& target : targets) {
    expect_gone(it, target);
    expect_left_out(it, target);
    bring_back(it);
  }
}

}  // namespace

constinit const FaultKind faults::kKill{
    .word = "kill",
    .keys = {.nodes = true, .back_s = true},
    .usual = true,
    .attached = true,
    .draw = draw_kill,
    .impossible =
        [](const Beginning& run) { return run.last_copies ? std::string() : too_few_workers(run); },
    .begin = begin_kill,
    .judged = {.takes = true, .timed = true},
    .shown = {.style = "hurt", .sign = "x", .meaning = "killed"},
};

}  // namespace starling::chaos
