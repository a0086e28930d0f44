// The swarm: random jobs, groups, weather and faults; every run must keep all promises and end.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/base/hash.h"
#include "tests/sim/run_seeds.h"

namespace starling::sim {
namespace {

constexpr std::uint64_t kSeeds = 2000;

// Rare states that the swarm must have been in; one that stays at 0 proves nothing any more.
constexpr const char* kMustHappen[] = {
    "begin at vote",
    "begin at gather",
    "begin at compute",
    "fresh plan",
    "prepared switch",
    "joiner entered",
    "joiner in a forced plan",
    "joiner killed",
    "plan with moves",
    "forced plan after a prepared one",
    "two epochs to be fenced",
    "leader lost while forming",
    "leader and worker lost together",
    "coordinator crashed while writing",
    "new leader",
    "fenced worker starts a new life",
    "leaver released",
    "notice ended",
    "state lost",
    "skipped step",
    "micro-batch of a lost worker computed again",
    "epoch at the last version",
    "the only one that had passed was killed",
    "guard lost with its worker",
    "connection stalled",
    "killed when: computed",
    "killed when: reducing",
    "killed when: move sent",
    "killed when: move arrived",
    "killed when: voted",
    "killed when: applied",
    "killed when: gathering",
    "killed when: connecting",
    "killed when: joiner entered",
    "killed when: said ready",
    "killed when: stopped",
    "killed when: reported",
    "killed when: finished",
    "killed when: leave announced",
    "killed when: joining",
    "killed when: switched",
    "exposure",
    "unequal shares by votes",
    "switch to unequal shares",
    "member left without a share",
    "idle worker measured again",
    "checkpoint",
    "restart from a checkpoint",
    "fresh plan from a checkpoint",
    "damaged checkpoint",
    "coordinator wiped",
    "wiped coordinator repaired",
    "coordinator's snapshot",
    "worker hung",
    "hung worker left out",
    "sums sent while computing",
    "device step",
    "transport ready at some members",
    "transport lost",
    "device round",
    "round failed",
    "round of garbage",
    "round that never ends",
    "round without a member who is gone",
    "device step broken",
    "garbage totals refused",
    "stopped by a skipped step",
    "run ended in order",
    "pair of workers cut",
    "connection fell silent",
    "worker of the start unreachable",
    "coordinators late",
    "asked to drain",
    "asked to evict",
    "holds alone",
    "computes alone",
    "everybody who computes was lost",
};

TEST_CASE("swarm: every seed keeps all promises and ends") {
  if (const char* text = std::getenv("STARLING_SIM_SEED")) {
    const Settings settings = draw_settings(std::strtoull(text, nullptr, 10));
    std::fprintf(stderr, "%s\n", to_string(settings).c_str());
    const Verdict run =
        run_isolated([&](bool trace) { return World(settings, trace).run(); }, /*trace=*/true);
    CHECK(run.violation == "");
    return;
  }
  const SeedRange range = seeds_of_environment("STARLING_SIM_SEEDS", {1, kSeeds});
  const BatchResult batch = run_seeds(range.first, range.count, draw_settings);
  for (const Verdict& run : batch.runs)
    if (!run.violation.empty())
      FAIL_CHECK("STARLING_SIM_SEED=" << run.seed << ": " << run.violation);
  for (const auto& [what, times] : batch.coverage)
    std::printf("  %-50s %llu\n", what.c_str(), static_cast<unsigned long long>(times));
  // The same before and after a change that is to change nothing.
  std::uint64_t hash = 0;
  for (const Verdict& run : batch.runs) hash = mix64(hash, run.event_hash);
  std::printf("  %llu seeds, %llu events, hash %016llx\n",
              static_cast<unsigned long long>(batch.seeds),
              static_cast<unsigned long long>(batch.events), static_cast<unsigned long long>(hash));
  if (range.count < kSeeds) return;
  for (const char* what : kMustHappen) {
    CAPTURE(what);
    CHECK(batch.coverage.count(what) == 1);
  }
}

// A prepared plan may name it: it enters only forced ones, and reports that it has no copy.
TEST_CASE("swarm: who stopped before it had built a fresh state is not judged to lack it") {
  CHECK(run_seeds(7547, 1, draw_settings).runs.front().violation == "");
}

TEST_CASE("swarm: a pass that ends in the instant in which a hang does has nothing left to add") {
  CHECK(run_seeds(1056142, 1, draw_settings).runs.front().violation == "");
}

// It was cut off when it passed these steps, all others who had passed them died, and the job ended
// without it soon after it was heard again.
TEST_CASE("swarm: what a leaver alone knows is told") {
  CHECK(run_seeds(20199, 1, draw_settings).runs.front().violation == "");
}

// Frozen while a plan's connections were made, at version 0, and the only one that had not voted.
TEST_CASE("swarm: who alone knows that no vote passed is not left out for its links") {
  CHECK(run_seeds(1082890, 1, draw_settings).runs.front().violation == "");
}

// The leaver had voted for the change, in a step in which the other one had not.
TEST_CASE("swarm: a vote for a change binds nobody where another's of that step is not for it") {
  CHECK(run_seeds(13817, 1, draw_settings).runs.front().violation == "");
}

// Goal: an empty folder that counts as a first life would be noticed. Method: many wipes, and the
// same seed without the fault.
TEST_CASE("swarm: a wiped coordinator that votes at once is noticed") {
  const auto often = [](std::uint64_t seed, bool planted) {
    Settings s = draw_settings(seed);
    s.coordinators = 3;
    s.faults.coordinator_crashes = 20;
    s.faults.wipes = 1;
    s.persist = {5 * kMs, 60 * kMs};
    s.plant_wiped_vote = planted;
    return s;
  };
  const SeedRange seeds = seeds_of_environment("STARLING_SIM_SEARCH", {1, 400});
  const auto broken = [&](std::uint64_t seed) { return often(seed, true); };
  const BatchResult batch = run_seeds(seeds.first, seeds.count, broken, /*until_violation=*/true);
  const Verdict* found = batch.violated();
  REQUIRE(found != nullptr);
  std::printf("noticed by seed %llu: %s\n", static_cast<unsigned long long>(found->seed),
              found->violation.c_str());
  const auto mended = [&](std::uint64_t seed) { return often(seed, false); };
  CHECK(run_seeds(found->seed, 1, mended).runs.front().violation == "");
  const BatchResult clean = run_seeds(1, 100, mended);
  for (const Verdict& run : clean.runs) {
    CAPTURE(run.seed);
    CHECK(run.violation == "");
  }
}

// Goal: what the proof lanes and the comparison of copies are for. Method: each fault, and the same
// seed without.
TEST_CASE("swarm: wrong sums, parameters of another version and a wrong copy are noticed") {
  for (bool Settings::*plant : {&Settings::plant_early_bucket, &Settings::plant_use_twice,
                                &Settings::plant_stale_part, &Settings::plant_wrong_copy}) {
    const auto broken = [plant](std::uint64_t seed) {
      Settings s = draw_settings(seed);
      s.*plant = true;
      return s;
    };
    const BatchResult batch = run_seeds(1, 50, broken, /*until_violation=*/true);
    const Verdict* found = batch.violated();
    REQUIRE(found != nullptr);
    std::printf("noticed by seed %llu: %s\n", static_cast<unsigned long long>(found->seed),
                found->violation.c_str());
    CHECK(run_seeds(found->seed, 1, draw_settings).runs.front().violation == "");
  }
}

// Goal: what R4's compare is for. Method: parameters change often, and a compare may take as long
// as a vote. Words that change between publishing and sending are a directed schedule
// (step_rules_test.cpp): here both are one event.
TEST_CASE("swarm: damage that is compared after the rows have left is noticed") {
  const auto settings = [](std::uint64_t seed, bool planted) {
    Settings s = draw_settings(seed);
    s.workers = std::max(s.workers, 3u);
    s.replicas = 1;
    s.faults.flips = 8;
    s.compare = {0, 40 * kMs};
    s.plant_rows_first = planted;
    return s;
  };
  const auto broken = [&](std::uint64_t seed) { return settings(seed, true); };
  const BatchResult batch = run_seeds(1, 50, broken, /*until_violation=*/true);
  const Verdict* found = batch.violated();
  REQUIRE(found != nullptr);
  std::printf("noticed by seed %llu: %s\n", static_cast<unsigned long long>(found->seed),
              found->violation.c_str());
  const auto mended = [&](std::uint64_t seed) { return settings(seed, false); };
  const BatchResult clean = run_seeds(1, 50, mended);
  for (const Verdict& run : clean.runs) {
    CAPTURE(run.seed);
    CHECK(run.violation == "");
  }
}

// Goal: why totals are weighed before the vote, where a device transport has brought them.
TEST_CASE("swarm: garbage over a device transport is noticed if nobody weighs totals") {
  const auto settings = [](std::uint64_t seed, bool planted) {
    Settings s = draw_settings(seed);
    s.workers = std::max(s.workers, 2u);
    s.transport_ready = {1 * kMs, 10 * kMs};
    s.faults.bad_rounds = 0.2;
    s.plant_unweighed = planted;
    return s;
  };
  const auto broken = [&](std::uint64_t seed) { return settings(seed, true); };
  const BatchResult batch = run_seeds(1, 50, broken, /*until_violation=*/true);
  const Verdict* found = batch.violated();
  REQUIRE(found != nullptr);
  std::printf("noticed by seed %llu: %s\n", static_cast<unsigned long long>(found->seed),
              found->violation.c_str());
  const auto mended = [&](std::uint64_t seed) { return settings(seed, false); };
  const BatchResult clean = run_seeds(1, 50, mended);
  for (const Verdict& run : clean.runs) {
    CAPTURE(run.seed);
    CHECK(run.violation == "");
  }
  CHECK(clean.coverage.count("garbage totals refused") == 1);
}

TEST_CASE("swarm: the same seed gives the same events") {
  const BatchResult first = run_seeds(1, 40, draw_settings);
  const BatchResult second = run_seeds(1, 40, draw_settings);
  REQUIRE(first.runs.size() == second.runs.size());
  for (std::size_t i = 0; i < first.runs.size(); ++i) {
    CAPTURE(first.runs[i].seed);
    CHECK(first.runs[i].event_hash == second.runs[i].event_hash);
    CHECK(first.runs[i].events == second.runs[i].events);
  }
}

}  // namespace
}  // namespace starling::sim
