#include "tools/chaos/faults/workers.h"

#include <signal.h>

#include <string>
#include <utility>

#include "tools/chaos/processes.h"

namespace starling::chaos {

std::vector<judge::Target> targets_of(const std::vector<Player*>& players) {
  std::vector<judge::Target> targets;
  for (const Player* player : players) targets.push_back(player->target());
  return targets;
}

bool taken(const Player& player) {
  return player.over || player.killed || player.leaving;
}

std::string too_few_workers(const Beginning& run) {
  if (run.workers > run.workers_min) return {};
  return "of " + std::to_string(run.workers) + " workers " + std::to_string(run.workers_min) +
         " are always left (--keep)";
}

std::vector<Player*> to_be_gone(Disturbance& it) {
  Cast& cast = it.run().cast;
  const auto& nodes = it.fault().nodes;
  if (nodes.empty()) return it.choose(cast.members());
  std::vector<Player*> found;
  for (const std::string& node : nodes) {
    Player* player = cast.by_node(node);
    if (player && !taken(*player)) found.push_back(player);
  }
  if (found.empty()) it.hold_back("they are gone already");
  return found;
}

std::size_t that_count(const DisturbedRun& run) {
  return run.options.all_awake ? run.cast.members().size() : run.cast.living();
}

void kill_process(Player& player) {
  player.killed = true;
  if (player.pid != 0) {
    ::kill(player.pid, SIGKILL);
    return;
  }
  if (player.guard == 0) return;
  ::kill(player.guard, SIGSTOP);
  for (const int child : children_of(player.guard)) ::kill(child, SIGKILL);
  ::kill(player.guard, SIGKILL);
}

void bring_back(Disturbance& it) {
  if (it.fault().back_s <= 0) return;
  it.later(it.fault().back_s, [&it] {
    if (const Player* player = it.run().calls.start_worker(it.run().now))
      it.say("  " + player->name + " starts (process " + std::to_string(player->guard) + ")");
  });
}

void let_go_on(Disturbance& it) {
  for (const judge::Target& target : it.deed().targets) {
    Player* player = it.run().cast.by_process(target.pid);
    if (!player || !player->stopped) continue;
    ::kill(player->pid, SIGCONT);
    player->stopped = false;
  }
}

void expect_gone(Disturbance& it, const judge::Target& target, std::function<void()> then) {
  it.expect(
      kSoon_s, "process " + std::to_string(target.pid) + " is gone",
      [pid = target.pid] { return !alive(pid); }, std::move(then));
}

void expect_left_out(Disturbance& it, const judge::Target& target) {
  const judge::Story& story = it.run().story;
  it.expect(it.run().options.notice_s + kEpoch_s, "an epoch begins without " + target.name,
            [&story, target, from = story.epochs.size()] {
              for (std::size_t i = from; i < story.epochs.size(); ++i)
                if (!judge::is_member(story.epochs[i], target.id)) return true;
              return false;
            });
}

}  // namespace starling::chaos
