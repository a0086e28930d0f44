#include "actors/worker/step_clock.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace starling::actors {
namespace {

using std::chrono::milliseconds;
const StepClock::Clock::time_point kStart{};

// All marks but the first and the last, one ms after the other.
void pass(StepClock& clock) {
  for (std::size_t k = 1; k + 1 < kStepMarks; ++k)
    clock.mark(StepMark(k), kStart + milliseconds(k));
}

}  // namespace

TEST_CASE("step clock: a whole step is kept with its marks") {
  std::vector<StepTimes> kept;
  StepClock clock(&kept);
  clock.begin(7, 3);
  clock.computed(7, milliseconds(2));
  clock.computed(7, milliseconds(3));
  clock.computed(6, milliseconds(9));  // told late, of the step before
  pass(clock);
  clock.end(99);
  clock.end(99);  // a gather that is told twice ends it once
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].version == 7);
  CHECK(kept[0].world == 3);
  CHECK(kept[0].computing_ns == 5'000'000);
  CHECK(kept[0].sent_bytes == 99);
  CHECK(kept[0].at_ns[std::size_t(StepMark::kPassed)] == 6'000'000);
  CHECK(kept[0].at_ns[0] > 0);
  CHECK(kept[0].work_ns[0] > 0);
  CHECK(std::ranges::is_sorted(kept[0].work_ns));
}

TEST_CASE("step clock: a step that was not gone through in order is not kept") {
  std::vector<StepTimes> kept;
  StepClock clock(&kept);
  clock.end(1);  // the gather that an epoch begins with
  clock.begin(7, 3);
  clock.mark(StepMark::kComputed);
  clock.end(2);  // stopped, and gathered anew
  CHECK(kept.empty());
  clock.begin(7, 2);  // begun again by the epoch after
  pass(clock);
  clock.end(3);
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].world == 2);
}

TEST_CASE("step clock: a step's parameters may come while the next one is computed") {
  std::vector<StepTimes> kept;
  StepClock clock(&kept);
  clock.begin(7, 3);
  pass(clock);
  clock.begin(8, 3);
  clock.end(5);
  clock.end(6);
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].version == 7);
  CHECK(kept[0].sent_bytes == 5);
  CHECK(kept[0].at_ns.back() > 0);
  pass(clock);
  clock.end(9);
  REQUIRE(kept.size() == 2);
  CHECK(kept[1].version == 8);
}

TEST_CASE("step clock: nobody asks, nothing is looked at") {
  StepClock clock(nullptr);
  CHECK(clock.now() == StepClock::Clock::time_point());
  clock.begin(7, 3);
  pass(clock);
  clock.end(1);
}

}  // namespace starling::actors
