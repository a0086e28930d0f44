// This fault sends SIGTERM to workers, an announced leave; with `for_s`, SIGKILL after that time.

#include <signal.h>

#include "tools/chaos/faults/numbers.h"
#include "tools/chaos/faults/workers.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {
namespace {

void draw_leave(Fault& fault, Numbers& numbers, double) {
  fault.back_s = numbers.seconds(0.3, 3);
}

// Ends the notice: kills the processes that are still there.
void take_away(Disturbance& it) {
  it.lasts_until(it.run().now);
  Cast& cast = it.run().cast;
  for (const judge::Target& target : it.deed().targets) {
    Player* player = cast.by_process(target.pid);
    if (!player) player = cast.by_guard(target.pid);
    if (!player || player->over || player->killed) continue;
    it.say("  the notice is over: kill -9 " + judge::process_text(target));
    kill_process(*player);
  }
}

void begin_leave(Disturbance& it) {
  const DisturbedRun& run = it.run();
  const auto chosen = to_be_gone(it);
  if (chosen.empty()) return;
  if (that_count(run) < run.options.workers_min + chosen.size())
    return it.hold_back("too few workers would be left");
  const auto targets = targets_of(chosen);
  for (Player* player : chosen) {
    ::kill(player->guard != 0 ? player->guard : player->pid, SIGTERM);
    player->leaving = true;
  }
  it.hit("leave (SIGTERM)", targets);
  if (const double notice = it.fault().for_s; notice > 0)
    it.later(notice, [&it] { take_away(it); });
  for (const judge::Target& target : targets) {
    it.expect(
        run.options.notice_s + kEpoch_s, judge::process_text(target) + " is gone",
        [pid = target.pid] { return !alive(pid); }, [&it] { bring_back(it); });
    expect_left_out(it, target);
  }
}

}  // namespace

constinit const FaultKind faults::kLeave{
    .word = "leave",
    .keys = {.nodes = true, .for_s = true, .back_s = true},
    .usual = true,
    .attached = true,
    .draw = draw_leave,
    .impossible = too_few_workers,
    .begin = begin_leave,
    .judged = {.takes = true, .forces_epochs = false, .announced = true},
    .shown = {.style = "kind", .sign = "-", .meaning = "told to leave"},
};

}  // namespace starling::chaos
