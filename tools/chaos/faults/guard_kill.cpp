// This fault sends SIGKILL to the guards of workers, which go on.

#include <signal.h>

#include <algorithm>

#include "tools/chaos/faults/workers.h"
#include "tools/chaos/processes.h"

namespace starling::chaos {
namespace {

constexpr double kStillThere_s = 0.3;  // after it, every process that was not hit must be there
constexpr double kNews_s = 1;          // for the event that tells why a process has ended
constexpr double kAftermath_s = 10;    // a fault may end a life so long after it is over

// Returns whether another cause may end that life: another deed,
// a restart (it fences all living workers), the end of the job.
bool has_other_end(const DisturbedRun& run, const judge::Deed& deed, const judge::Target& target) {
  const double since = deed.t - kAftermath_s;
  const auto hit_it = [&](const judge::Deed& other) {
    return &other != &deed && other.outcome == judge::Deed::Outcome::kDone &&
           std::max(other.t, other.until_t) >= since &&
           std::any_of(other.targets.begin(), other.targets.end(),
                       [&](const judge::Target& t) { return t.pid == target.pid; });
  };
  const auto& restarts = run.story.restarts;
  return run.story.over() || std::any_of(run.deeds.begin(), run.deeds.end(), hit_it) ||
         std::any_of(restarts.begin(), restarts.end(),
                     [&](const auto& restart) { return restart.t >= since; });
}

void expect_to_live(Disturbance& it, const judge::Target& worker) {
  it.expect(kNews_s, judge::process_text(worker) + " lives without its guard", [&it, worker] {
    return alive(worker.pid) || has_other_end(it.run(), it.deed(), worker);
  });
}

void begin_guard_kill(Disturbance& it) {
  auto guarded = it.run().cast.members();
  std::erase_if(guarded, [](const Player* player) { return player->guard == 0; });
  const auto chosen = it.choose(guarded);
  if (chosen.empty()) return;
  const auto workers = targets_of(chosen);
  auto guards = workers;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    guards[i].pid = chosen[i]->killed_guard = chosen[i]->guard;
    ::kill(guards[i].pid, SIGKILL);
  }
  it.hit("kill -9 the guard of", guards);
  for (std::size_t i = 0; i < chosen.size(); ++i)
    expect_gone(it, guards[i], [&it, worker = workers[i]] {
      it.later(kStillThere_s, [&it, worker] { expect_to_live(it, worker); });
    });
}

}  // namespace

constinit const FaultKind faults::kGuardKill{
    .word = "guard-kill",
    .begin = begin_guard_kill,
    .judged = {.takes_guard = true},
    .shown = {.style = "hurt", .sign = "g", .meaning = "guard killed"},
};

}  // namespace starling::chaos
