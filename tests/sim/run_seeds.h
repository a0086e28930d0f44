#pragma once
// Runs simulated worlds in child processes: a check that fails inside a machine ends its process,
// and the seed must be known all the same.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/world.h"

namespace starling::sim {

struct Verdict {
  std::string violation;  // empty: clean; if the process ended: how
  std::uint64_t seed = 0, event_hash = 0, events = 0;
  Micros ended_at = 0;
  int exit_code = -1;
};

struct BatchResult {
  std::vector<Verdict> runs;  // in order; ends with the first violation if asked to
  std::map<std::string, std::uint64_t> coverage;
  std::uint64_t seeds = 0, events = 0;
  const Verdict* violated() const;  // the first one, or null
};

using Draw = std::function<Settings(std::uint64_t seed)>;

// Seeds first .. first+count-1. `until_violation`: stops at the first.
BatchResult run_seeds(std::uint64_t first, std::uint64_t count, const Draw& draw,
                      bool until_violation = false);

struct SeedRange {
  std::uint64_t first = 1, count = 1;
};
// "first:count", or one seed, of an environment variable; `usual` if it is not set.
SeedRange seeds_of_environment(const char* variable, SeedRange usual);

// One world, in a child; with a trace on stderr if asked.
Verdict run_isolated(const std::function<Outcome(bool trace)>& run, bool trace = false);

}  // namespace starling::sim
