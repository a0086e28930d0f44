// This fault has every link of a worker, and of its guard, pass nothing for `for_s`.

#include "tools/chaos/faults/link_changes.h"
#include "tools/chaos/faults/numbers.h"
#include "tools/chaos/faults/workers.h"

namespace starling::chaos {
namespace {

// Draws for_s so that most workers are left out, and some are back in time.
void draw_partition(Fault& fault, Numbers& numbers, double lease_s) {
  fault.for_s = numbers.seconds(0.5 * lease_s, 4 * lease_s);
}

struct Cut {
  Linked worker;
  Witness witness;
};

void mend_cut(Disturbance& it, const Cut& cut) {
  DisturbedRun& run = it.run();
  Player& player = *cut.worker.player;
  it.lasts_until(run.now);
  if (cut.witness.tight && !taken(player))
    it.expect(0, "nothing had come to " + player.name + " until the end of that",
              [tight = cut.witness.tight()] { return tight; });
  mend(run, player);
  expect_back(it, cut.worker);
}

void begin_partition(Disturbance& it) {
  const auto chosen = with_whole_links(it);
  if (chosen.empty()) return;
  DisturbedRun& run = it.run();
  const double for_s = it.fault().for_s;
  it.hit("cut off for " + seconds_text(for_s), targets_of(chosen));
  it.lasts_until(run.now + for_s);
  for (Player* player : chosen) {
    player->link_disturbed = true;
    const Cut cut{linked(run, player), run.calls.links->cut(player->name)};
    it.expect(for_s + kSoon_s, cut.witness.what,
              [cut, player] { return cut.witness.seen() || taken(*player); });
    it.later(for_s, [&it, cut] { mend_cut(it, cut); });
  }
}

}  // namespace

constinit const FaultKind faults::kPartition{
    .word = "partition",
    .keys = {.for_s = true},
    .link = FaultKind::Link::kCut,
    .draw = draw_partition,
    .begin = begin_partition,
    .end = mend_all,
    .judged = {.silences = true},
    .shown = {.style = "stopped", .meaning = "cut off"},
};

}  // namespace starling::chaos
