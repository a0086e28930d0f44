#include "kernels/device/granules.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <vector>

namespace starling::kernels {
namespace {

using Runs = std::vector<Granules::Run>;

TEST_CASE("granules: the first user maps, the last one unmaps, what lies between is shared") {
  Granules granules(1000, 100);
  CHECK(granules.bytes() == 1000);
  CHECK(granules.take(50, 200).fresh == Runs{{0, 300}});
  const auto second = granules.take(250, 100);
  CHECK(second.fresh == Runs{{300, 100}});
  CHECK(second.reused.empty());
  CHECK(granules.used(0, 400));
  CHECK_FALSE(granules.used(399, 2));
  const auto given = granules.give(50, 200);
  CHECK(given.unused == Runs{{0, 200}});
  CHECK(given.shared == Runs{{200, 50}});
  CHECK_FALSE(granules.used(0, 1));
  CHECK(granules.mapped() == Runs{{0, 400}});
  CHECK(granules.take_unused({0, 200}, given.number) == Runs{{0, 200}});
  CHECK(granules.take_unused({0, 400}, given.number).empty());
  CHECK(granules.mapped() == Runs{{200, 200}});
}

TEST_CASE("granules: what is used again before it is unmapped stays mapped") {
  Granules granules(1001, 100);
  CHECK(granules.bytes() == 1100);
  granules.take(0, 300);
  const auto given = granules.give(0, 300);
  CHECK(granules.take(100, 1).reused == Runs{{100, 100}});
  CHECK(granules.take_unused(given.unused.front(), given.number) == Runs{{0, 100}, {200, 100}});
  CHECK(granules.mapped() == Runs{{100, 100}});
  // Who kept memory when it was given for the first time says nothing of the second time.
  const auto again = granules.give(100, 1);
  CHECK(granules.take_unused(given.unused.front(), given.number).empty());
  CHECK(granules.take_unused({100, 100}, again.number) == Runs{{100, 100}});
  CHECK(granules.take(5, 0).fresh.empty());
  CHECK(granules.give(1100, 0).unused.empty());
}

// A device has no memory left: what was to be mapped is not, and who keeps memory that was found without a user still has
// it unmapped.
TEST_CASE("granules: a call that is taken back changes nothing") {
  Granules granules(1000, 100);
  granules.take(0, 300);
  const auto given = granules.give(100, 200);
  const auto before = granules.mapped();
  const auto taken = granules.take(50, 500);
  CHECK(taken.reused == Runs{{100, 200}});
  CHECK(taken.fresh == Runs{{300, 300}});
  granules.undo(taken, 50, 500);
  CHECK(granules.mapped() == before);
  CHECK(granules.used(0, 100));
  CHECK_FALSE(granules.used(100, 1));
  CHECK(granules.take_unused({100, 200}, given.number) == Runs{{100, 200}});
  CHECK(granules.mapped() == Runs{{0, 100}});
  CHECK(granules.give(0, 100).unused == Runs{{0, 100}});
}

TEST_CASE("granules: bytes are there as long as one of their ranges is taken") {
  constexpr std::size_t kBytes = 4000, kGrain = 64;
  std::mt19937 random(3);
  Granules granules(kBytes, kGrain);
  std::map<std::size_t, std::size_t> taken;  // ranges that do not overlap, by offset
  std::vector<int> users(kBytes);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t offset = random() % kBytes, count = 1 + random() % 200;
    if (const auto there = taken.find(offset); there != taken.end()) {
      const auto given = granules.give(there->first, there->second);
      for (const Granules::Run& run : given.unused) granules.take_unused(run, given.number);
      for (std::size_t b = 0; b < there->second; ++b) --users[there->first + b];
      taken.erase(there);
    } else if (offset + count <= kBytes) {
      granules.take(offset, count);
      for (std::size_t b = 0; b < count; ++b) ++users[offset + b];
      taken[offset] = count;
    }
    std::size_t wanted = 0;
    for (std::size_t g = 0; g < granules.bytes(); g += kGrain) {
      bool used = false;
      for (std::size_t b = g; b < std::min(kBytes, g + kGrain); ++b) used |= users[b] > 0;
      wanted += used ? kGrain : 0;
      REQUIRE(granules.used(g, 1) == used);
    }
    std::size_t mapped = 0;
    for (const Granules::Run& run : granules.mapped()) mapped += run.count;
    REQUIRE(mapped == wanted);
  }
}

}  // namespace
}  // namespace starling::kernels
