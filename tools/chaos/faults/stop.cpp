// This fault sends SIGSTOP to workers, and SIGCONT after `for_s`.

#include <signal.h>

#include <memory>

#include "tools/chaos/faults/numbers.h"
#include "tools/chaos/faults/workers.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {
namespace {

// Draws for_s, from a hiccup to an eviction.
void draw_stop(Fault& fault, Numbers& numbers, double lease_s) {
  fault.for_s = numbers.seconds(0.05 * lease_s, 3 * lease_s);
}

// Waits for the stop, then wakes: on a busy machine a process may get its first moment to stop
// in only after a short stop should be over, and a SIGCONT before that takes the stop back.
void wake(Disturbance& it, const judge::Target& target, const std::function<bool()>& was_stopped) {
  const double now = it.run().now;
  if (!was_stopped() && now < it.deed().t + kSoon_s)
    return it.later(kPulse_s, [=, &it] { wake(it, target, was_stopped); });
  it.lasts_until(now);
  if (Player* player = it.run().cast.by_process(target.pid)) player->stopped = false;
  if (!alive(target.pid)) return;
  ::kill(target.pid, SIGCONT);
  it.expect(kSoon_s, judge::process_text(target) + " goes on",
            [pid = target.pid] { return !stopped(pid); });
}

void begin_stop(Disturbance& it) {
  DisturbedRun& run = it.run();
  const auto chosen = it.choose(run.cast.members());
  if (chosen.empty()) return;
  if (run.options.all_awake && that_count(run) < run.options.workers_min + chosen.size())
    return it.hold_back("too few workers would be awake");
  const double for_s = it.fault().for_s;
  for (Player* player : chosen) {
    ::kill(player->pid, SIGSTOP);
    player->stopped = true;
  }
  it.hit("stop for " + seconds_text(for_s), targets_of(chosen));
  it.lasts_until(run.now + for_s);
  for (const judge::Target& target : it.deed().targets) {
    // A life that has just been left out may have ended of its own accord.
    const auto seen = std::make_shared<bool>(false);
    const auto look = [seen, pid = target.pid] {
      return *seen = *seen || stopped(pid) || !alive(pid);
    };
    it.expect(kSoon_s, judge::process_text(target) + " is stopped, or over", look);
    it.later(for_s, [=, &it] { wake(it, target, look); });
  }
}

}  // namespace

constinit const FaultKind faults::kStop{
    .word = "stop",
    .keys = {.for_s = true},
    .usual = true,
    .attached = true,
    .draw = draw_stop,
    .impossible =
        [](const Beginning& run) { return run.all_awake ? too_few_workers(run) : std::string(); },
    .begin = begin_stop,
    .end = let_go_on,
    .judged = {.silences = true},
    .shown = {.style = "stopped", .meaning = "stopped"},
};

}  // namespace starling::chaos
