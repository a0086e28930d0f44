#include "tools/chaos/cast.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "core/base/exit.h"
#include "tools/chaos/processes.h"
#include "tools/judge/pauses.h"

namespace starling::chaos {

Player& Cast::add(std::string name, int guard, double t) {
  Player& player = players_.emplace_back();
  player.name = std::move(name);
  player.guard = guard;
  player.began_t = t;
  return player;
}

Player* Cast::find(const std::string& name) {
  for (auto it = players_.rbegin(); it != players_.rend(); ++it)
    if (it->name == name) return &*it;
  return nullptr;
}

Player* Cast::by_guard(int guard) {
  for (Player& player : players_)
    if (player.guard == guard && guard != 0) return &player;
  return nullptr;
}

Player* Cast::by_node(const std::string& node) {
  for (auto it = players_.rbegin(); it != players_.rend(); ++it)
    if (it->node == node && !node.empty()) return &*it;
  return nullptr;
}

Player* Cast::by_process(int pid) {
  for (Player& player : players_)
    if (player.pid == pid && pid != 0) return &player;
  return nullptr;
}

void Cast::learn(const event::WorkerChanged& seen) {
  Player* player = find(seen.name);
  if (!player) return;
  if (seen.what == WorkerChange::kJoined && player->is_older_than(seen.id)) {
    player->id = seen.id;
    if (seen.pid != 0) player->pid = static_cast<int>(seen.pid);
  }
}

void Cast::learn(const event::EpochFormed& epoch) {
  epoch_ = epoch;
  // The event of a worker's joining may have been lost with a coordinator.
  for (const event::EpochMember& m : epoch.members)
    if (Player* player = find(m.name); player && player->is_older_than(m.id)) player->id = m.id;
}

void Cast::elsewhere(std::uint64_t id, bool there) {
  if (there)
    elsewhere_.insert(id);
  else
    elsewhere_.erase(id);
}

void Cast::look() {
  for (Player& player : players_) {
    if (player.over) continue;
    const bool guard_there = player.guard != 0 && alive(player.guard);
    if (player.pid == 0 || !alive(player.pid)) {
      if (player.pid != 0) player.ended = std::max(player.ended, std::exchange(player.id, 0));
      player.pid = 0;
      player.stopped = false;
      if (guard_there)  // a new life, or the first
        for (const int child : children_of(player.guard)) player.pid = child;
    }
    if (player.pid != 0) watched_.insert(player.pid);
    if (!guard_there) player.guard = 0;
    if (!guard_there && player.pid == 0) player.over = true;
  }
  std::erase_if(watched_, [&](int pid) {
    if (alive(pid)) return false;
    gone_.emplace(pid, now_);
    return true;
  });
}

std::vector<Player*> Cast::members() {
  std::vector<Player*> found;
  for (Player& player : players_)
    if (player.can_be_hit() && player.id != 0 && judge::is_member(epoch_, player.id))
      found.push_back(&player);
  std::sort(found.begin(), found.end(),
            [](const Player* a, const Player* b) { return a->id < b->id; });
  return found;
}

std::size_t Cast::living() const {
  return static_cast<std::size_t>(
      std::count_if(players_.begin(), players_.end(),
                    [](const Player& p) { return !p.over && !p.killed && !p.leaving; }));
}

std::vector<int> Cast::processes() const {
  std::vector<int> pids;
  for (const Player& player : players_)
    for (const int pid : {player.guard, player.pid})
      if (pid != 0 && !player.over) pids.push_back(pid);
  return pids;
}

bool Cast::last_copies(const std::vector<const Player*>& taken) const {
  std::set<std::uint64_t> able = elsewhere_;
  for (const Player& player : players_)
    if (player.can_be_hit() && std::find(taken.begin(), taken.end(), &player) == taken.end())
      able.insert(player.id);
  for (const auto& holders : judge::holders_by_segment(epoch_))
    if (std::none_of(holders.begin(), holders.end(),
                     [&](std::uint64_t id) { return able.count(id) > 0; }))
      return true;
  return false;
}

bool explained(const judge::ProcessEnd& end, const Player& player, int run_status) {
  constexpr int kKilled = 128 + SIGKILL, kFenced = 75;
  if (end.status == 0 || end.status == run_status) return true;
  if (end.status == kKilled) return player.killed || end.pid == player.killed_guard;
  if (end.status == 128 + SIGTERM) return player.leaving;
  if (end.status == kFenced) return player.killed_guard != 0;  // else its guard begins a new life
  return end.status == kExitAlone && run_status == 0;  // it was out of touch when the job ended
}

std::vector<judge::Revenant> revenants_of(const judge::Story& story,
                                          const std::vector<judge::Deed>& deeds,
                                          const std::multimap<int, double>& gone) {
  std::vector<judge::Revenant> revenants;
  for (const judge::Deed& deed : deeds) {
    if (deed.outcome != judge::Deed::Outcome::kDone || !deed.judged.silences) continue;
    for (const judge::Target& target : deed.targets) {
      if (target.id == 0) continue;
      for (const auto& epoch : story.epochs) {
        const double at = judge::committed_at(epoch);
        if (at <= deed.t || at > deed.until_t || judge::is_member(epoch, target.id)) continue;
        judge::Revenant revenant{target, to_string(epoch.id), deed.until_t, std::nullopt};
        const auto [first, last] = gone.equal_range(target.pid);  // in the order of time
        const auto it =
            std::find_if(first, last, [&](const auto& g) { return g.second >= deed.t; });
        if (it != last) {
          if (it->second < deed.until_t) break;  // the worker was killed in its sleep
          revenant.gone_t = it->second;
        }
        revenants.push_back(std::move(revenant));
        break;
      }
    }
  }
  return revenants;
}

}  // namespace starling::chaos
