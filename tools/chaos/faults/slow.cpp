// This fault stops workers for `share` of every pulse, for `for_s`.

#include <signal.h>

#include <cstdio>

#include "tools/chaos/faults/numbers.h"
#include "tools/chaos/faults/workers.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {
namespace {

void draw_slow(Fault& fault, Numbers& numbers, double) {
  fault.for_s = numbers.seconds(0.5, 4);
  fault.share = Numbers::round(0.2 + 0.7 * numbers.uniform());
}

// `seen`: pulses in which the process was found to be stopped.
void pulse(Disturbance& it, const judge::Target& target, int seen) {
  const double now = it.run().now;
  Player* player = it.run().cast.by_process(target.pid);
  const bool over = now >= it.deed().t + it.fault().for_s || !player || !alive(target.pid);
  if (over) {
    if (player) player->stopped = false;
    it.lasts_until(now);
    it.expect(kSoon_s, judge::process_text(target) + " was slow and goes on",
              [pid = target.pid, seen] { return !alive(pid) || (seen > 0 && !stopped(pid)); });
    return;
  }
  player->stopped = true;  // to other faults
  ::kill(target.pid, SIGSTOP);
  it.later(kPulse_s * it.fault().share, [=, &it] {
    const int found = seen + (stopped(target.pid) ? 1 : 0);
    ::kill(target.pid, SIGCONT);
    it.later(kPulse_s * (1 - it.fault().share), [=, &it] { pulse(it, target, found); });
  });
}

void begin_slow(Disturbance& it) {
  const auto chosen = it.choose(it.run().cast.members());
  if (chosen.empty()) return;
  const Fault& fault = it.fault();
  char share[16];
  std::snprintf(share, sizeof share, "%.0f %%", 100 * (1 - fault.share));
  it.hit(std::string("slow to ") + share + " for " + seconds_text(fault.for_s), targets_of(chosen));
  it.lasts_until(it.run().now + fault.for_s);
  for (const judge::Target& target : it.deed().targets) pulse(it, target, 0);
}

}  // namespace

constinit const FaultKind faults::kSlow{
    .word = "slow",
    .keys = {.for_s = true, .share = true},
    .draw = draw_slow,
    .begin = begin_slow,
    .end = let_go_on,
    .shown = {.style = "slow", .meaning = "slow"},
};

}  // namespace starling::chaos
