#include "tools/chaos/faults/link_changes.h"

#include <string>

#include "tools/chaos/faults/workers.h"

namespace starling::chaos {

std::vector<Player*> with_whole_links(Disturbance& it) {
  if (!it.run().calls.links) {
    it.hold_back("links cannot be disturbed");
    return {};
  }
  auto members = it.run().cast.members();
  std::erase_if(members, [](const Player* player) { return player->link_disturbed; });
  return it.choose(members);
}

// Mends the links; a new player of that name may have whole links already.
void mend(DisturbedRun& run, Player& player) {
  player.link_disturbed = false;
  if (run.cast.find(player.name) == &player) run.calls.links->mend(player.name);
}

Linked linked(DisturbedRun& run, Player* player) {
  return {player, player->id, run.story.epochs.size()};
}

void expect_back(Disturbance& it, const Linked& worker) {
  const judge::Story& story = it.run().story;
  const auto left_out = [&story, worker] {
    for (std::size_t i = worker.epochs; i < story.epochs.size(); ++i)
      if (!judge::is_member(story.epochs[i], worker.id)) return true;
    return false;
  };
  const auto back = [&story, worker] {  // as a new life
    const auto* last = story.last_epoch();
    return worker.player->id > worker.id && last && judge::is_member(*last, worker.player->id);
  };
  const auto goes_on = [&story, worker, steps = story.step_lines.size()] {
    const auto* last = story.last_epoch();
    return last && judge::is_member(*last, worker.id) && story.step_lines.size() > steps &&
           story.step_lines.back().epoch == last->id;
  };
  const std::string name = worker.player->name;
  it.expect(
      kEpoch_s, name + " goes on, or was left out and is back as a new life",
      [=] { return taken(*worker.player) || (left_out() ? back() : goes_on()); },
      [=, &it] {
        if (!taken(*worker.player))
          it.say("  " + name + (left_out() ? " is back as a new life" : " goes on"));
      });
}

void mend_all(Disturbance& it) {
  for (const judge::Target& target : it.deed().targets)
    if (Player* player = it.run().cast.find(target.name); player && player->link_disturbed)
      mend(it.run(), *player);
}

}  // namespace starling::chaos
