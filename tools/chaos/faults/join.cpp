// This fault starts `count` new workers.

#include "tools/chaos/faults/workers.h"

namespace starling::chaos {
namespace {

void begin_join(Disturbance& it) {
  DisturbedRun& run = it.run();
  const Fault& fault = it.fault();
  if (run.cast.living() + fault.count > run.options.workers_max)
    return it.hold_back(std::to_string(run.cast.living()) + " workers are there");
  std::vector<judge::Target> targets;
  for (std::uint32_t i = 0; i < fault.count; ++i) {
    Player* player = run.calls.start_worker(run.now);
    if (!player) break;
    if (i < fault.nodes.size()) player->node = fault.nodes[i];
    targets.push_back(player->target());
    targets.back().pid = player->guard;
  }
  if (targets.empty()) return it.hold_back("no worker can be started");
  it.hit("join", targets);
  for (const judge::Target& target : targets)
    it.expect(
        kJoin_s, target.name + " is a member of an epoch",
        [&run, name = target.name, from = run.story.epochs.size()] {
          const Player* player = run.cast.find(name);
          for (std::size_t i = from; i < run.story.epochs.size(); ++i)
            if (player && player->id != 0 && judge::is_member(run.story.epochs[i], player->id))
              return true;
          return false;
        },
        /*then=*/{}, [&run, name = target.name] {  // by another fault, or by the end of the job
          const Player* player = run.cast.find(name);
          return !player || player->over || player->killed;
        });
}

}  // namespace

constinit const FaultKind faults::kJoin{
    .word = "join",
    .keys = {.nodes = true},
    .usual = true,
    .begin = begin_join,
    .judged = {.forces_epochs = false, .announced = true},
    .shown = {.style = "kind", .sign = "+", .meaning = "joined"},
};

}  // namespace starling::chaos
