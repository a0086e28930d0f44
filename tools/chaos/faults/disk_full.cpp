// This fault keeps coordinators from writing any file for `for_s`. A coordinator writes
// only when it has a decision, so a worker comes, and goes when the space is back.

#include <signal.h>

#include <algorithm>

#include "tools/chaos/faults/coordinators.h"
#include "tools/chaos/faults/numbers.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {
namespace {

constexpr double kDiskLook_s = 0.01;  // between two looks at the outcome

void draw_disk_full(Fault& fault, Numbers& numbers, double) {
  fault.for_s = numbers.seconds(0.5, 3);
}

// A process that takes a coordinator's place finds the disk full, too. When
// the time is over and each has had something to write, there is space again.
void keep_disk_full(Disturbance& it, int guest) {
  DisturbedRun& run = it.run();
  const judge::Deed& deed = it.deed();
  auto& full = run.full_coordinators;
  const auto is_hit = [&](const judge::Target& coordinator) {
    return std::any_of(deed.targets.begin(), deed.targets.end(),
                       [&](const judge::Target& t) { return t.name == coordinator.name; });
  };
  const bool written = std::none_of(deed.targets.begin(), deed.targets.end(),
                                    [](const judge::Target& t) { return alive(t.pid); });
  const bool over = run.now > deed.t + kJoin_s || (written && run.now >= deed.t + deed.for_s);
  for (const judge::Target& coordinator : run.calls.coordinators()) {
    if (!is_hit(coordinator) || (!over && full.count(coordinator.pid))) continue;
    if (let_write_files(coordinator.pid, over) && !over) full.insert(coordinator.pid);
  }
  it.lasts_until(run.now);
  if (!over) return it.later(kDiskLook_s, [&it, guest] { keep_disk_full(it, guest); });
  full.clear();
  it.say("  there is space again");
  for (const judge::Target& target : deed.targets) expect_again(it, target);
  Player* player = run.cast.by_guard(guest);
  if (!player || player->over || player->killed || player->leaving) return;
  player->leaving = true;
  ::kill(player->guard, SIGTERM);
}

void begin_disk_full(Disturbance& it) {
  DisturbedRun& run = it.run();
  const auto there = whole_coordinators(it);
  if (there.empty()) return;
  if (run.cast.living() + 1 > run.options.workers_max)
    return it.hold_back(std::to_string(run.cast.living()) + " workers are there");
  const Player* guest = run.calls.start_worker(run.now);
  if (!guest) return it.hold_back("no worker can be started");
  it.hit("no space for " + seconds_text(it.fault().for_s) + " for", it.pick(there));
  for (const judge::Target& target : it.deed().targets) {
    const std::string log = target.name + "/raft.log";
    it.expect(kJoin_s, "process " + std::to_string(target.pid) + " has ended",
              [pid = target.pid] { return !alive(pid); });
    it.expect(kJoin_s, target.name + " has said that it cannot write its log",
              [&run, log, before = run.calls.said(log)] { return run.calls.said(log) > before; });
  }
  keep_disk_full(it, guest->guard);
}

void end_disk_full(Disturbance& it) {
  for (const int pid : it.run().full_coordinators) let_write_files(pid, true);
}

}  // namespace

constinit const FaultKind faults::kDiskFull{
    .word = "disk-full",
    .keys = {.for_s = true},
    .draw = draw_disk_full,
    .impossible = too_few_coordinators,
    .begin = begin_disk_full,
    .end = end_disk_full,
    .shown = {.style = "stopped", .meaning = "without space", .on_coordinators = true},
};

}  // namespace starling::chaos
