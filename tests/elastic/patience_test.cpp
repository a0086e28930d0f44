// How long the leader waits for whom: tables of silences and of what workers are at.

#include "elastic/membership/patience.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

TEST_CASE("patience: lateness that most share is not that of the latest") {
  struct Case {
    const char* name;
    std::vector<std::uint64_t> longest;
    std::uint64_t tolerance;
  };
  const Case cases[] = {
      {"one alone has nobody to be compared with", {5000}, kLease},
      {"all are in time", {100, 110, 120, 1100}, kLease},
      {"of two the other counts", {100, 9000}, kLease},
      {"both are late", {700, 900}, 2800},
      {"half of the others are late", {100, 600, 600, 2000}, 2400},
      {"less than half of the others are late", {100, 100, 600, 600, 2000}, kLease},
      {"all are gone", {60000, 60000, 60000}, 10 * kLease},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(tolerance_ms(c.longest, kLease) == c.tolerance);
  }
}

TEST_CASE("patience: a silence is remembered for a while after it ended") {
  Silence silence;
  silence.hear(1000, kLease);
  silence.hear(1700, kLease);
  CHECK(silence.open_ms(1900, 0) == 200);
  CHECK(silence.longest_ms(1900, 0, kLease) == 700);
  CHECK(silence.longest_ms(2600, 0, kLease) == 900);  // the open one
  CHECK(silence.open_ms(2600, 2500) == 100);          // a new leader counts afresh
  for (std::uint64_t now = 1800; now < 41000; now += 100) silence.hear(now, kLease);
  CHECK(silence.longest_ms(41000, 0, kLease) == 100);
}

TEST_CASE("patience: whoever owes something and stands still holds up those who wait") {
  struct Case {
    const char* name;
    std::vector<Standing> members;  // at 10,000 ms, with a patience of 5,000 ms
    std::vector<std::size_t> by;
  };
  const Case cases[] = {
      {"all wait for one", {{false, 1000}, {true, 900}, {false, 2000}}, {1}},
      {"not for long enough", {{false, 1000}, {true, 900}, {false, 6000}}, {}},
      {"it moved not long ago", {{false, 1000}, {true, 6000}, {false, 2000}}, {}},
      {"another may be what they wait for", {{false, 1000}, {true, 900}, {true, 7000}}, {}},
      {"all wait for two", {{false, 1000}, {true, 900}, {true, 800}}, {1, 2}},
      {"all are as late", {{true, 1000}, {true, 900}}, {}},
      {"nobody owes anything", {{false, 1000}, {false, 900}}, {}},
      {"one alone", {{true, 1000}}, {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(held_up(c.members, /*now_ms=*/10000, /*patience_ms=*/5000).by == c.by);
  }
}

TEST_CASE("patience: it is a multiple of what steps take, or of what the others took") {
  const std::vector<Standing> nobody_waits = {{true, 5000}, {true, 5000}};
  const std::vector<Standing> one_waits = {{true, 5000}, {false, 8000}};
  StepTimes steps;
  steps.epoch_begins(5000);
  CHECK(patience_ms(nobody_waits, steps, 20, 1000) == 1000);
  CHECK(patience_ms(one_waits, steps, 20, 1000) == 20 * 3000);
  CHECK(patience_ms(one_waits, steps, 20, 90000) == 90000);
  steps.passed(0, 5000);
  for (std::uint64_t v = 1; v <= 8; ++v) steps.passed(v, 5000 + v * 400);
  steps.passed(8, 9000);  // another member
  CHECK(steps.longest_ms() == 400);
  CHECK(patience_ms(one_waits, steps, 20, 1000) == 20 * 400);
  steps.epoch_begins(60000);  // a pause is no step
  steps.passed(8, 70000);
  CHECK(steps.longest_ms() == 400);
  steps.passed(10, 71000);
  CHECK(steps.longest_ms() == 500);
  for (std::uint64_t v = 11; v < 30; ++v) steps.passed(v, 71000 + v);
  CHECK(steps.longest_ms() < 100);
}

}  // namespace
}  // namespace starling::elastic
