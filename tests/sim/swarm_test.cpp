// The swarm: random jobs, groups, weather and faults; every run must keep all promises and end.

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/sim/run_seeds.h"

namespace starling::sim {
namespace {

constexpr std::uint64_t kSeeds = 2000;

struct Range {
  std::uint64_t first = 1, count = kSeeds;
};

Range range_of_environment() {
  Range range;
  if (const char* text = std::getenv("STARLING_SIM_SEEDS")) {
    char* end = nullptr;
    range.first = std::strtoull(text, &end, 10);
    range.count = *end == ':' ? std::strtoull(end + 1, nullptr, 10) : 1;
  }
  return range;
}

TEST_CASE("swarm: every seed keeps all promises and ends") {
  if (const char* text = std::getenv("STARLING_SIM_SEED")) {
    const Settings settings = draw_settings(std::strtoull(text, nullptr, 10));
    std::fprintf(stderr, "%s\n", to_string(settings).c_str());
    const Verdict run =
        run_isolated([&](bool trace) { return World(settings, trace).run(); }, /*trace=*/true);
    CHECK(run.violation == "");
    return;
  }
  const Range range = range_of_environment();
  const BatchResult batch = run_seeds(range.first, range.count, draw_settings);
  std::map<std::string, std::uint64_t> kinds;
  for (const Verdict& run : batch.runs) {
    if (run.violation.empty()) continue;
    std::printf("STARLING_SIM_SEED=%llu: %s\n", static_cast<unsigned long long>(run.seed),
                run.violation.substr(0, 400).c_str());
  }
  for (const auto& [what, times] : batch.coverage)
    std::printf("  %-50s %llu\n", what.c_str(), static_cast<unsigned long long>(times));
  std::printf("seeds %llu events %llu\n", (unsigned long long)batch.seeds,
              (unsigned long long)batch.events);
  CHECK(batch.violated() == nullptr);
}

}  // namespace
}  // namespace starling::sim
