#include "collectives/tcp/newcomers.h"

#include <doctest/doctest.h>

namespace starling::collectives {

namespace {
constexpr std::chrono::seconds kPatience{3};
const Newcomers::Clock::time_point kNow{std::chrono::hours(1)};
}  // namespace

TEST_CASE("newcomers: who is there for longer than a handshake may take has been let in") {
  Newcomers newcomers(3, kPatience);
  for (int i = 0; i < 3; ++i) CHECK(!newcomers.came({i, {"a", 1}}, kNow));
  CHECK(newcomers.came({3, {"a", 1}}, kNow + kPatience));
  CHECK(!newcomers.came({4, {"a", 1}}, kNow + kPatience + kPatience / 2));
  CHECK(newcomers.size() == 2);
}

TEST_CASE("newcomers: within the bound nobody has to go") {
  Newcomers newcomers(4, kPatience);
  for (int i = 0; i < 4; ++i) CHECK(!newcomers.came({i, {"10.0.0.1", 1}}, kNow));
  newcomers.settled(2);
  CHECK(!newcomers.came({7, {"10.0.0.1", 1}}, kNow));
  CHECK(newcomers.size() == 4);
}

TEST_CASE("newcomers: a flood from one address takes that address's room, the oldest first") {
  Newcomers newcomers(10, kPatience);
  CHECK(!newcomers.came({1, {"10.0.0.1", 1}}, kNow));
  CHECK(!newcomers.came({2, {"10.0.0.2", 1}}, kNow));
  for (int i = 100; i < 108; ++i) CHECK(!newcomers.came({i, {"10.6.6.6", 1}}, kNow));
  for (int i = 108; i < 200; ++i) {
    const auto gone = newcomers.came({i, {"10.6.6.6", 1}}, kNow);
    REQUIRE(gone);
    CHECK(gone->number == i - 8);
  }
  CHECK(newcomers.came({3, {"10.0.0.3", 1}}, kNow)->from.host == "10.6.6.6");
  CHECK(newcomers.size() == 10);
}

TEST_CASE("newcomers: a number that comes again is another connection") {
  Newcomers newcomers(2, kPatience);
  CHECK(!newcomers.came({1, {"a", 1}}, kNow));
  CHECK(!newcomers.came({1, {"b", 2}}, kNow));
  CHECK(newcomers.size() == 1);
  newcomers.settled(1);
  newcomers.settled(1);
  CHECK(newcomers.size() == 0);
}

}  // namespace starling::collectives
