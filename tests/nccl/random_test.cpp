#include <doctest/doctest.h>

#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/nccl/world.h"

namespace starling::collectives {
namespace {

constexpr std::uint32_t kSize = 3;

// Some faults of a run, each at some rank's event that may or may not come.
std::string draw_orders(std::mt19937_64& random) {
  const char* const names[] = {"hang-init",   "fail-init",  "refuse-init", "slow-init",
                               "refuse",      "late",       "hang",        "error",
                               "error-later", "slow-abort", "slow-revoke"};
  std::string orders;
  for (int i = 0; i < 4; ++i) {
    if (i > 0) orders += ",";
    orders += std::string(names[random() % std::size(names)]) + "@" +
              std::to_string(1 + random() % 6) + "/" + std::to_string(random() % kSize) + ":" +
              std::to_string(random() % 20);
  }
  return orders;
}

// Until everybody told `wanted`: true; or somebody told something else, or the stand-in says that
// something hangs: then others may wait for ever.
bool all_tell(World& world, const std::string& wanted, std::int64_t hung) {
  for (std::size_t have = 0; have < kSize;) {
    if (counts().hung > hung) return false;
    have = 0;
    for (const auto& member : world.members()) {
      const std::string event = member->peek();
      if (event.empty()) continue;
      if (event != wanted) return false;
      ++have;
    }
    std::this_thread::yield();
  }
  for (const auto& member : world.members()) member->next();
  return true;
}

// Goal: whatever the library does, a transport tells the truth, its end comes, and the next one is
// whole. Method: ranks of one process make one transport after the other under faults that are
// drawn, give up at the first that fails or when the stand-in says that something hangs; seeds 1 to
// 40.
TEST_CASE("random faults: what is told is true, and every transport ends") {
  int rounds = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    const std::string orders = draw_orders(random);
    CAPTURE(seed);
    CAPTURE(orders);
    World world(kSize, {}, orders);
    for (int attempt = 0; attempt < 4; ++attempt) {
      const std::int64_t hung = counts().hung;
      world.begin(2 * 5000);
      bool good = all_tell(world, "ready", hung);
      for (int round = 0; good && round < 4; ++round, ++rounds) {
        const Table table = everybody_to_everybody(kSize, random() % 5000);
        const std::uint64_t content = random();
        world.ask(table, content);
        good = all_tell(world, "round", hung);
        for (const auto& member : world.members())
          if (good) CHECK(member->right(table, content));
      }
      // In any order, and without waiting for anything.
      for (std::size_t i = 0, first = random() % kSize; i < kSize; ++i)
        world[(first + i) % kSize].drop();
      for (const auto& member : world.members()) member->forget();
    }
    give_orders("");
    world.make(1000);
    world.round_is_right(everybody_to_everybody(kSize, 300), seed);
    for (const auto& member : world.members()) member->await_end();
    CHECK(counts().communicators == 0);
    CHECK(counts().threads == 0);
  }
  CHECK(rounds > 100);  // most of what is asked for goes well
}

}  // namespace
}  // namespace starling::collectives
