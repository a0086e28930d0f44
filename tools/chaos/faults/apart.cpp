// This fault keeps `count` workers from hearing one another for `for_s`; all other links are whole.

#include <algorithm>
#include <string>

#include "tools/chaos/faults/link_changes.h"
#include "tools/chaos/faults/numbers.h"
#include "tools/chaos/faults/workers.h"

namespace starling::chaos {
namespace {

constexpr std::uint32_t kAtLeast = 2;           // workers of a fault
constexpr std::size_t kWorkers = kAtLeast + 1;  // members that a fault needs: one hears all others

// Most faults last longer than a lease, some are shorter.
void draw_apart(Fault& fault, Numbers& numbers, double lease_s) {
  fault.count = kAtLeast;
  fault.for_s = numbers.seconds(0.5 * lease_s, 4 * lease_s);
}

std::string impossible(const Beginning& run) {
  return run.workers < kWorkers ? "it needs three workers (--workers)" : "";
}

struct Set {
  std::vector<Linked> workers;
  std::vector<std::string> names;
  Witness witness;

  bool any_taken() const {
    return std::any_of(workers.begin(), workers.end(),
                       [](const Linked& worker) { return taken(*worker.player); });
  }
};

void mend_set(Disturbance& it, const Set& set) {
  DisturbedRun& run = it.run();
  it.lasts_until(run.now);
  if (set.witness.tight && !set.any_taken())
    it.expect(0, "nothing had passed between them until the end of that",
              [tight = set.witness.tight()] { return tight; });
  for (const Linked& worker : set.workers)  // another player may have the name by now
    if (run.cast.find(worker.player->name) == worker.player)
      run.calls.links->mend(worker.player->name);
  // Until a probe has seen that, no other fault disturbs these links.
  it.expect(
      kSoon_s, "they hear one another again",
      [&run, set] { return run.calls.links->hear_one_another(set.names) || set.any_taken(); },
      [set] {
        for (const Linked& worker : set.workers) worker.player->link_disturbed = false;
      });
  for (const Linked& worker : set.workers) expect_back(it, worker);
}

void begin_apart(Disturbance& it) {
  DisturbedRun& run = it.run();
  if (run.calls.links && run.calls.links->some_are_apart())
    return it.hold_back("other workers are apart");
  const auto chosen = with_whole_links(it);
  if (chosen.empty()) return;
  if (chosen.size() < kAtLeast || run.cast.members().size() < kWorkers)
    return it.hold_back("it needs three workers that can be hit");
  Set set;
  for (Player* player : chosen) {
    player->link_disturbed = true;
    set.workers.push_back(linked(run, player));
    set.names.push_back(player->name);
  }
  const double for_s = it.fault().for_s;
  it.hit("set apart for " + seconds_text(for_s), targets_of(chosen));
  it.lasts_until(run.now + for_s);
  set.witness = run.calls.links->set_apart(set.names);
  it.expect(for_s + kSoon_s, set.witness.what,
            [set] { return set.witness.seen() || set.any_taken(); });
  it.later(for_s, [&it, set] { mend_set(it, set); });
}

}  // namespace

constinit const FaultKind faults::kApart{
    .word = "apart",
    .keys = {.for_s = true, .count_min = kAtLeast},
    .link = FaultKind::Link::kApart,
    .draw = draw_apart,
    .impossible = impossible,
    .begin = begin_apart,
    .end = mend_all,
    .shown = {.style = "slow", .meaning = "apart"},
};

}  // namespace starling::chaos
