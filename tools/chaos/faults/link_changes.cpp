#include "tools/chaos/faults/link_changes.h"

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

// The name may be another's by now, who began with links as they should be.
void mend(DisturbedRun& run, Player& player) {
  player.link_disturbed = false;
  if (run.cast.find(player.name) == &player) run.calls.links->mend(player.name);
}

void mend_all(Disturbance& it) {
  for (const Target& target : it.deed().targets)
    if (Player* player = it.run().cast.find(target.name); player && player->link_disturbed)
      mend(it.run(), *player);
}

}  // namespace starling::chaos
