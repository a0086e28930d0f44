#include "actors/worker/pause_clock.h"

#include <doctest/doctest.h>

namespace starling::actors {
namespace {

using std::chrono::milliseconds;

TEST_CASE("pause clock: each part begins where the one before ends") {
  PauseClock clock;
  const PauseClock::Clock::time_point t{};
  clock.stopped(t);
  clock.mark(PauseClock::kReported, t + milliseconds(1));
  clock.mark(PauseClock::kPlanned, t + milliseconds(3));
  clock.mark(PauseClock::kConnected, t + milliseconds(6));
  clock.mark(PauseClock::kComputed, t + milliseconds(10));
  clock.mark(PauseClock::kReduced, t + milliseconds(15));
  const auto pause = clock.passed(t + milliseconds(21));
  REQUIRE(pause);
  CHECK(*pause == Pause{1, 2, 3, 4, 5, 6});
  CHECK_FALSE(clock.passed(t + milliseconds(30)));
}

TEST_CASE("pause clock: an epoch that begins at its vote has no time for computing and reducing") {
  PauseClock clock;
  const PauseClock::Clock::time_point t{};
  clock.stopped(t);
  clock.mark(PauseClock::kReported, t + milliseconds(1));
  clock.mark(PauseClock::kPlanned, t + milliseconds(2));
  clock.mark(PauseClock::kConnected, t + milliseconds(3));
  CHECK(clock.passed(t + milliseconds(5)) == Pause{1, 1, 1, 0, 0, 2});
}

TEST_CASE("pause clock: a second stop before the pass lengthens the first part") {
  PauseClock clock;
  const PauseClock::Clock::time_point t{};
  clock.stopped(t);
  clock.mark(PauseClock::kReported, t + milliseconds(1));
  clock.mark(PauseClock::kPlanned, t + milliseconds(2));
  clock.stopped(t + milliseconds(50));
  clock.mark(PauseClock::kReported, t + milliseconds(51));
  clock.mark(PauseClock::kPlanned, t + milliseconds(53));
  CHECK(clock.passed(t + milliseconds(60)) == Pause{51, 2, 0, 0, 0, 7});
}

// Goal: no part is negative, which coordinators would refuse with the step and so with the end of
// the run. Method: the data plane tells of the stopped epoch's sums when its report is out already.
TEST_CASE("pause clock: the word of the epoch that was stopped does not count") {
  PauseClock clock;
  const PauseClock::Clock::time_point t{};
  clock.stopped(t);
  clock.mark(PauseClock::kReported, t + milliseconds(1));
  clock.mark(PauseClock::kReduced, t + milliseconds(2));
  clock.mark(PauseClock::kPlanned, t + milliseconds(3));
  clock.mark(PauseClock::kConnected, t + milliseconds(6));
  clock.mark(PauseClock::kComputed, t + milliseconds(10));
  clock.mark(PauseClock::kReduced, t + milliseconds(15));
  CHECK(clock.passed(t + milliseconds(21)) == Pause{1, 2, 3, 4, 5, 6});
}

TEST_CASE("pause clock: a step without a stop before it has no pause") {
  PauseClock clock;
  clock.mark(PauseClock::kReduced);
  CHECK_FALSE(clock.passed());
}

}  // namespace
}  // namespace starling::actors
