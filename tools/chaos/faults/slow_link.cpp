// This fault adds `delay_s` each way to every link of a worker, for `for_s`.

#include <cstdio>

#include "tools/chaos/faults/link_changes.h"
#include "tools/chaos/faults/numbers.h"
#include "tools/chaos/faults/workers.h"

namespace starling::chaos {
namespace {

void draw_slow_link(Fault& fault, Numbers& numbers, double) {
  fault.for_s = numbers.seconds(0.5, 4);
  fault.delay_s = numbers.seconds(0.001, 0.05);
}

void begin_slow_link(Disturbance& it) {
  const auto chosen = with_whole_links(it);
  if (chosen.empty()) return;
  DisturbedRun& run = it.run();
  const Fault& fault = it.fault();
  char delay[32];
  std::snprintf(delay, sizeof delay, "%.1f ms", 1000 * fault.delay_s);
  it.hit(std::string("delay by ") + delay + " for " + seconds_text(fault.for_s),
         targets_of(chosen));
  it.lasts_until(run.now + fault.for_s);
  for (Player* player : chosen) {
    player->link_disturbed = true;
    const Witness late = run.calls.links->delay(player->name, fault.delay_s);
    it.expect(fault.for_s + kSoon_s, late.what,
              [late, player] { return late.seen() || taken(*player); });
    it.later(fault.for_s, [&it, player] {
      it.lasts_until(it.run().now);
      mend(it.run(), *player);
    });
  }
}

}  // namespace

constinit const FaultKind faults::kSlowLink{
    .word = "slow-link",
    .keys = {.for_s = true, .delay_s = true},
    .link = FaultKind::Link::kDelay,
    .draw = draw_slow_link,
    .begin = begin_slow_link,
    .end = mend_all,
    .shown = {.style = "slow", .meaning = "late"},
};

}  // namespace starling::chaos
