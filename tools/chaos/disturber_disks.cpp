// Faults of disks: processes that can write no file.

#include <signal.h>

#include <algorithm>

#include "tools/chaos/disturber.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {

constexpr double kLook_s = 0.01;  // between two looks at what has become of it
// For a checkpoint to be due, which is a matter of steps, and these of everything else that is done.
constexpr double kCheckpoint_s = 600;

// ---- Of coordinators --------------------------------------------------------------------------

// A coordinator writes when there is something to decide, so a worker comes, and goes when the
// space is back.
void Disturber::fill_disk(std::size_t number, double now) {
  const auto there = sorted_coordinators();
  if (there.size() < 3)
    return hold_back(number, std::to_string(there.size()) + " coordinators are up");
  if (!full_.empty()) return hold_back(number, "one has no space");
  if (cast_.living() + 1 > options_.workers_max)
    return hold_back(number, std::to_string(cast_.living()) + " workers are there");
  const Player* guest = calls_.start_worker(now);
  if (!guest) return hold_back(number, "no worker can be started");
  const Fault& fault = deeds_[number].fault;
  const auto first = static_cast<std::size_t>(fault.target * static_cast<double>(there.size()));
  std::vector<Target> targets;
  for (std::size_t i = 0; i < std::min<std::size_t>(fault.count, there.size()); ++i)
    targets.push_back(there[(first + i) % there.size()]);
  hit(number, now, "no space for " + seconds_text(fault.for_s) + " for", targets);
  for (const Target& target : targets) {
    const std::string log = target.name + "/raft.log";
    expect(number, now, kJoin_s, "process " + std::to_string(target.pid) + " has ended",
           [pid = target.pid] { return !alive(pid); });
    expect(number, now, kJoin_s, target.name + " has said that it cannot write its log",
           [this, log, before = calls_.said(log)] { return calls_.said(log) > before; });
  }
  keep_full(number, guest->guard, now);
}

// Whoever comes in its place finds the disk full, too. At the end of the time, if by then each has
// had something to write, there is space again.
void Disturber::keep_full(std::size_t number, int guest, double now) {
  const Deed& deed = deeds_[number];
  const auto is_hit = [&](const Target& coordinator) {
    return std::any_of(deed.targets.begin(), deed.targets.end(),
                       [&](const Target& t) { return t.name == coordinator.name; });
  };
  const bool written = std::none_of(deed.targets.begin(), deed.targets.end(),
                                    [](const Target& t) { return alive(t.pid); });
  const bool over = now > deed.t + kJoin_s || (written && now >= deed.t + deed.fault.for_s);
  for (const Target& coordinator : calls_.coordinators()) {
    if (!is_hit(coordinator) || (!over && full_.count(coordinator.pid))) continue;
    if (let_write_files(coordinator.pid, over) && !over) full_.insert(coordinator.pid);
  }
  deeds_[number].until_t = now;
  if (!over) {
    agenda_.later(now + kLook_s, [=, this](double then) { keep_full(number, guest, then); });
    return;
  }
  full_.clear();
  say(now, "  there is space again");
  for (const Target& target : deed.targets) expect_again(number, now, target);
  Player* player = cast_.by_guard(guest);
  if (!player || player->over || player->killed || player->leaving) return;
  player->leaving = true;
  ::kill(player->guard, SIGTERM);
}

// ---- Of workers -------------------------------------------------------------------------------

// Whether nothing is to be expected any more of the process that was hit: it is over, by another
// fault perhaps, or a checkpoint was given up for it since there were so many warnings.
bool Disturber::out_of_space(const Player& player, int pid, std::size_t warnings) const {
  if (taken(player) || player.pid != pid || !alive(pid)) return true;
  return warned_of(player.name, warnings);
}

bool Disturber::warned_of(const std::string& worker, std::size_t warnings) const {
  for (std::size_t i = warnings; i < story_.warnings.size(); ++i)
    if (story_.warnings[i].find("is given up: " + worker + ":") != std::string::npos) return true;
  return false;
}

void Disturber::fill_checkpoint_disk(std::size_t number, double now) {
  if (!options_.checkpoints) return hold_back(number, "the job writes no checkpoints");
  const auto chosen = choose(number, cast_.members());
  if (chosen.empty()) return;
  hit(number, now, "no space for " + seconds_text(deeds_[number].fault.for_s) + " for",
      targets_of(chosen));
  for (Player* player : chosen) {
    const std::size_t warnings = story_.warnings.size();
    full_workers_.insert(player->pid);
    let_write_files(player->pid, false);
    expect(number, now, kCheckpoint_s, "a checkpoint is given up for " + player->name,
           [=, this, pid = player->pid] { return out_of_space(*player, pid, warnings); });
    give_space_back(number, player, player->pid, warnings, now);
  }
}

// At the end of the time, if by then a checkpoint was due.
void Disturber::give_space_back(std::size_t number, Player* player, int pid, std::size_t warnings,
                                double now) {
  const Deed& deed = deeds_[number];
  const bool tried = out_of_space(*player, pid, warnings);
  const bool over = now > deed.t + kCheckpoint_s || (tried && now >= deed.t + deed.fault.for_s);
  deeds_[number].until_t = now;
  if (!over) {
    agenda_.later(now + kLook_s,
                  [=, this](double then) { give_space_back(number, player, pid, warnings, then); });
    return;
  }
  for (const Target& target : deed.targets)
    if (target.name == player->name && full_workers_.erase(target.pid) > 0)
      let_write_files(target.pid, true);
  expect(number, now, kEpoch_s, "steps are committed after that",
         [this, steps = story_.step_lines.size()] { return story_.step_lines.size() > steps; });
}

}  // namespace starling::chaos
