#pragma once
// A Plan says what chaos will do to a run: a list of faults, each at a time, of a kind
// (faults/kind.h), at a target, drawn up front from a seed, so that a run is repeated by
// its plan. Pure; deed.h has the real target when its time comes, and what happened to it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/chaos/faults/table.h"

namespace starling::chaos {

struct Fault {
  double at_s = 0;                         // after the first committed step
  const FaultKind* kind = &faults::kKill;  // never null
  // Place among those that it can hit, the oldest first, as a fraction in [0, 1): the
  // same worker whenever the same ones are there. `count` of them from there on, in turn.
  double target = 0;
  std::uint32_t count = 1;
  // Names instead of a place: kill, leave: workers that came as these; join: names of new ones.
  std::vector<std::string> nodes;
  double for_s = 0;  // how long it lasts, if it does; of a leave, its notice
  // For each process that a kill or leave takes, one joins so long after; 0: none.
  double back_s = 0;
  double share = 0;    // slow: the part of each pulse in which it is stopped
  double delay_s = 0;  // slow-link: each way
  bool operator==(const Fault&) const = default;
};

struct Plan {
  std::uint64_t seed = 0;  // of the draw; 0: written by hand
  // These describe the disturbed run.
  std::uint64_t steps = 0;
  std::uint32_t workers = 4, threads = 1, coordinators = 3;
  std::vector<std::string> nodes;  // names of the first workers; empty: they have none
  std::optional<std::uint64_t> lease_ms;
  std::optional<std::uint32_t> replicas;
  std::vector<Fault> faults;  // in the order of their times
  bool operator==(const Plan&) const = default;
};

// Returns the first kind in the plan that changes this of a link; null: none does.
const FaultKind* kind_with(const Plan& plan, FaultKind::Link change);
// Returns whether the plan disturbs links (links.h).
bool disturbs_links(const Plan& plan);

// Says why none of these can be done in a run that begins so; empty: one can.
std::string impossible(const std::vector<const FaultKind*>& kinds, const Beginning& run);

struct Draw {
  std::uint64_t seed = 1;
  double rate = 1;  // faults a second
  double seconds = 60;
  std::vector<const FaultKind*> kinds;  // each as likely as another
  double lease_s = 1;                   // of the job: how long a stop must last to matter
};
// Spreads at most `faults` of them over all of the time.
Draw spread(Draw draw, std::size_t faults);
// Depends on its argument alone: one fault in each interval of 1/rate, at a drawn moment of it.
std::vector<Fault> draw_faults(const Draw& draw);

// Write and read TOML, for people and for --plan; parse_plan(format_plan(p))
// == p for a valid plan. Errors: kBadInput  key, value and what was expected.
std::string format_plan(const Plan& plan);
Result<Plan> parse_plan(const std::string& toml);
Result<Plan> load_plan(const std::string& path);

}  // namespace starling::chaos
