#pragma once
// What chaos will do to a run: a list of faults, each at a time, of a kind, at a target, drawn up
// front from a seed, so that a run is repeated by its plan. Pure; who the target is when its time
// comes, and what happened to it, is in deed.h.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling::chaos {

enum class FaultKind : std::uint8_t {
  kKill = 1,         // SIGKILL to worker processes, `count` of them in one instant
  kStop,             // SIGSTOP to a worker, SIGCONT after `for_s`
  kJoin,             // `count` new workers
  kLeave,            // SIGTERM: an announced leave; with `for_s` SIGKILL to who is there after it
  kCoordinatorKill,  // SIGKILL to a coordinator; `starling run` starts it again
  kGuardKill,        // SIGKILL to the guard of a worker, which goes on
  kSlow,             // a worker that is stopped for `share` of every pulse, for `for_s`
  kPartition,        // every link of a worker, and of its guard, passes nothing for `for_s`
  kCorrupt,          // one bit on its way in a bulk connection of a worker
  kSlowLink,         // every link of a worker takes `delay_s` longer each way, for `for_s`
  kDiskFull,         // a coordinator can write no file for `for_s`
  kCheckpointFull,   // a worker can write no file for `for_s`, when a checkpoint is due
};
inline constexpr std::size_t kFaultKinds = 12;

const char* to_string(FaultKind kind);
std::string known_kinds();  // "kill, stop, ..."
// "kill,stop"; each at most once. Errors: kBadInput  names the word and what is known.
Result<std::vector<FaultKind>> parse_kinds(const std::string& words);

struct Fault {
  double at_s = 0;  // after the first committed step
  FaultKind kind = FaultKind::kKill;
  // Place among those that it can hit, the oldest first, as a fraction in [0, 1): the same worker
  // whenever the same ones are there. `count` of them from there on, in turn.
  double target = 0;
  std::uint32_t count = 1;
  // By name instead: kill, leave: the workers that came as these; join: as whom they come.
  std::vector<std::string> nodes;
  double for_s = 0;  // how long it lasts, where it lasts; of a leave, its notice
  // For each process that a kill or leave takes, one joins so long after; 0: none.
  double back_s = 0;
  double share = 0;    // kSlow: of each pulse
  double delay_s = 0;  // kSlowLink: each way
  bool operator==(const Fault&) const = default;
};

struct Plan {
  std::uint64_t seed = 0;  // it was drawn from; 0: written by hand
  // The disturbed run.
  std::uint64_t steps = 0;
  std::uint32_t workers = 4, threads = 1, coordinators = 3;
  std::vector<std::string> nodes;  // as whom the first workers come; empty: they have no such names
  std::optional<std::uint64_t> lease_ms;
  std::optional<std::uint32_t> replicas;
  std::vector<Fault> faults;  // in the order of their times
  bool operator==(const Plan&) const = default;
};

// Whether the plan disturbs links (links.h).
bool disturbs_links(const Plan& plan);

struct Draw {
  std::uint64_t seed = 1;
  double rate = 1;  // faults a second
  double seconds = 60;
  std::vector<FaultKind> kinds;  // each as likely as another
  double lease_s = 1;            // of the job: how long a stop must last to matter
};
// A function of its argument alone: one fault in each interval of 1/rate, at a drawn moment of it.
std::vector<Fault> draw_faults(const Draw& draw);

// TOML, for people and for --plan; parse_plan(format_plan(p)) == p for a valid plan. Errors:
// kBadInput  key, value and what was expected.
std::string format_plan(const Plan& plan);
Result<Plan> parse_plan(const std::string& toml);
Result<Plan> load_plan(const std::string& path);

}  // namespace starling::chaos
