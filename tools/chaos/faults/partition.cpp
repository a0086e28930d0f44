// Every link of a worker, and of its guard, passes nothing for `for_s`.

#include "tools/chaos/faults/link_changes.h"
#include "tools/chaos/faults/numbers.h"
#include "tools/chaos/faults/workers.h"

namespace starling::chaos {
namespace {

// Most are left out, some are back in time.
void draw(Fault& fault, Numbers& numbers, double lease_s) {
  fault.for_s = numbers.seconds(0.5 * lease_s, 4 * lease_s);
}

struct Cut {
  Player* player;
  std::uint64_t id;    // its life
  std::size_t epochs;  // that had been told of
  Witness witness;
};

void heal(Disturbance& it, const Cut& cut) {
  DisturbedRun& run = it.run();
  const Story& story = run.story;
  it.lasts_until(run.now);
  if (cut.witness.tight && !taken(*cut.player))
    it.expect(0, "nothing had come to " + cut.player->name + " until the end of that",
              [tight = cut.witness.tight()] { return tight; });
  mend(run, *cut.player);
  const auto left_out = [&story, cut] {
    for (std::size_t i = cut.epochs; i < story.epochs.size(); ++i)
      if (!story.epochs[i].has(cut.id)) return true;
    return false;
  };
  const auto back = [&story, cut] {  // as a new life
    const EpochSeen* last = story.last_epoch();
    return cut.player->id > cut.id && last && last->has(cut.player->id);
  };
  const auto goes_on = [&story, cut, steps = story.step_lines.size()] {
    const EpochSeen* last = story.last_epoch();
    return last && last->has(cut.id) && story.step_lines.size() > steps &&
           story.step_lines.back().second.epoch == last->id;
  };
  const std::string name = cut.player->name;
  it.expect(
      kEpoch_s, name + " goes on, or was left out and is back as a new life",
      [=] { return taken(*cut.player) || (left_out() ? back() : goes_on()); },
      [=, &it] {
        if (!taken(*cut.player))
          it.say("  " + name + (left_out() ? " is back as a new life" : " goes on"));
      });
}

void begin(Disturbance& it) {
  const auto chosen = with_whole_links(it);
  if (chosen.empty()) return;
  DisturbedRun& run = it.run();
  const double for_s = it.fault().for_s;
  it.hit("cut off for " + seconds_text(for_s), targets_of(chosen));
  it.lasts_until(run.now + for_s);
  for (Player* player : chosen) {
    player->link_disturbed = true;
    const Cut cut{player, player->id, run.story.epochs.size(), run.calls.links->cut(player->name)};
    it.expect(for_s + kSoon_s, cut.witness.what,
              [cut] { return cut.witness.seen() || taken(*cut.player); });
    it.later(for_s, [&it, cut] { heal(it, cut); });
  }
}

}  // namespace

constinit const FaultKind faults::kPartition{
    .word = "partition",
    .keys = {.for_s = true},
    .link = FaultKind::Link::kCut,
    .draw = draw,
    .begin = begin,
    .end = mend_all,
    .judged = {.silences = true},
    .shown = {.style = "stopped", .meaning = "cut off"},
};

}  // namespace starling::chaos
