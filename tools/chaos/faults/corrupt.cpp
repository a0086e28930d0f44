// This fault flips one bit on its way in a bulk connection of a worker.

#include <algorithm>
#include <cstddef>

#include "tools/chaos/faults/link_changes.h"
#include "tools/chaos/faults/workers.h"

namespace starling::chaos {
namespace {

constexpr int kFlipsMore = 3;  // that may meet an epoch which is being left

// At a switch the bit may be in a connection of the epoch that is being left,
// which is not used any more (R1): then flip another bit, up to `more` times.
void flip(Disturbance& it, const Player* player, int more) {
  Links& links = *it.run().calls.links;
  const judge::Story& story = it.run().story;
  const std::string name = player->name;
  const auto counts = [&links, name] { return links.counts(name); };
  const LinkCounts before = counts();
  const auto given_up = [=] { return counts().given_up > before.given_up || taken(*player); };
  const auto begun = [&story, epochs = story.epochs.size()](PlanKind kind) {
    return std::any_of(story.epochs.begin() + std::ptrdiff_t(epochs), story.epochs.end(),
                       [&](const event::EpochFormed& epoch) { return epoch.kind == kind; });
  };
  const auto forced = [=] { return begun(PlanKind::kForced) || taken(*player); };
  it.expect(
      kEpoch_s, "a bit is flipped from or to " + name,
      [=] { return counts().flipped > before.flipped || taken(*player); },
      [&it] { it.lasts_until(it.run().now); });
  it.expect(kEpoch_s, "that connection is given up", given_up);
  it.expect(
      kEpoch_s,
      more == 0 ? "an epoch is forced" : "an epoch is forced, or left just then: once more",
      [=] { return forced() || (more > 0 && given_up() && begun(PlanKind::kPrepared)); },
      [=, &it] {
        if (!forced()) flip(it, player, more - 1);
      });
  links.flip(name);
}

void begin_corrupt(Disturbance& it) {
  if (it.run().cast.members().size() < 2) return it.hold_back("there is no bulk connection");
  const auto chosen = with_whole_links(it);
  if (chosen.empty()) return;
  it.hit("flip a bit on its way from or to", targets_of(chosen));
  for (const Player* player : chosen) flip(it, player, kFlipsMore);
}

}  // namespace

constinit const FaultKind faults::kCorrupt{
    .word = "corrupt",
    .link = FaultKind::Link::kFlip,
    .begin = begin_corrupt,
    .shown = {.style = "hurt", .sign = "~", .meaning = "a bit flipped"},
};

}  // namespace starling::chaos
