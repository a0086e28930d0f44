// This fault keeps workers from writing any file for `for_s`, when a checkpoint is due.

#include "tools/chaos/faults/numbers.h"
#include "tools/chaos/faults/workers.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {
namespace {

constexpr double kCheckpointLook_s = 0.01;  // between two looks at the outcome
// Limit for a checkpoint to be due, which depends on steps, and these on all other faults.
constexpr double kCheckpoint_s = 600;

void draw_checkpoint_full(Fault& fault, Numbers& numbers, double) {
  fault.for_s = numbers.seconds(0.5, 3);
}

// A Full is a worker's process without space.
struct Full {
  Player* player;
  int pid;
  std::size_t warnings;  // given before
};

// Returns whether the hit process has no more to show: it is over,
// by another fault perhaps, or a checkpoint was given up for it.
bool over(const judge::Story& story, const Full& full) {
  if (taken(*full.player) || full.player->pid != full.pid || !alive(full.pid)) return true;
  for (std::size_t i = full.warnings; i < story.warnings.size(); ++i)
    if (story.warnings[i].find("is given up: " + full.player->name + ":") != std::string::npos)
      return true;
  return false;
}

void give_back(Player& player) {
  let_write_files(player.full, true);
  player.full = 0;
}

// Ends the fault when its time is over and a checkpoint was due.
void keep_checkpoint_full(Disturbance& it, const Full& full) {
  const DisturbedRun& run = it.run();
  const double t = it.deed().t;
  it.lasts_until(run.now);
  const bool tried = over(run.story, full) && run.now >= t + it.fault().for_s;
  if (!tried && run.now <= t + kCheckpoint_s)
    return it.later(kCheckpointLook_s, [&it, full] { keep_checkpoint_full(it, full); });
  if (full.player->full == full.pid) give_back(*full.player);
  it.expect(
      kEpoch_s, "steps are committed after that",
      [&run, steps = run.story.step_lines.size()] { return run.story.step_lines.size() > steps; });
}

void begin_checkpoint_full(Disturbance& it) {
  DisturbedRun& run = it.run();
  if (!run.options.checkpoints) return it.hold_back("the job writes no checkpoints");
  const auto chosen = it.choose(run.cast.members());
  if (chosen.empty()) return;
  it.hit("no space for " + seconds_text(it.fault().for_s) + " for", targets_of(chosen));
  for (Player* player : chosen) {
    const Full full{player, player->pid, run.story.warnings.size()};
    player->full = full.pid;
    let_write_files(full.pid, false);
    it.expect(kCheckpoint_s, "a checkpoint is given up for " + player->name,
              [&run, full] { return over(run.story, full); });
    keep_checkpoint_full(it, full);
  }
}

void end_checkpoint_full(Disturbance& it) {
  for (const judge::Target& target : it.deed().targets)
    if (Player* player = it.run().cast.find(target.name); player && player->full == target.pid)
      give_back(*player);
}

}  // namespace

constinit const FaultKind faults::kCheckpointFull{
    .word = "checkpoint-full",
    .keys = {.for_s = true},
    .draw = draw_checkpoint_full,
    .impossible =
        [](const Beginning& run) {
          return std::string(run.checkpoints ? "" : "the job writes no checkpoints");
        },
    .begin = begin_checkpoint_full,
    .end = end_checkpoint_full,
    .judged = {.forces_epochs = false},
    .shown = {.style = "stopped", .meaning = "without space"},
};

}  // namespace starling::chaos
