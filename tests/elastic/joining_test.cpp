// How a life comes into the group: whom it asks, which plans are a way in, and when that is over.

#include "elastic/protocol/joining.h"

#include <doctest/doctest.h>

namespace starling::elastic {
namespace {

constexpr Incarnation kUnnumbered{0, 77}, kNumbered{5, 77};

Joining asking() {
  Joining joining;
  Join join;
  join.who = kUnnumbered;
  joining.ask(join);
  return joining;
}
Joining waiting() {
  Joining joining = asking();
  joining.welcome(kNumbered);
  return joining;
}

TEST_CASE("joining: it asks until it is welcomed, and has its number from then on") {
  Joining joining;
  CHECK(joining.question() == nullptr);  // the process is not up yet
  joining = asking();
  REQUIRE(joining.question() != nullptr);
  CHECK(joining.question()->who == kUnnumbered);
  CHECK(joining.self().counter == 0);
  CHECK_FALSE(joining.welcomed());
  joining.welcome(kNumbered);
  CHECK(joining.question() == nullptr);
  CHECK(joining.self().counter == 5);
  CHECK(joining.welcomed());
  CHECK(joining.outside());
  joining.check_invariants();
}

// A life whose welcome was lost is welcomed by the plan that names it, and by a late answer again.
TEST_CASE("joining: a welcome takes nobody back") {
  Joining building = waiting();
  building.initialise(0);
  building.welcome(kNumbered);
  CHECK(building.initialising());
  Joining joiner = waiting();
  joiner.join();
  joiner.welcome(kNumbered);
  CHECK(joiner.joiner());
  joiner.finish();
  joiner.welcome(kNumbered);
  CHECK(joiner.over());
}

TEST_CASE("joining: the others wait for a loaded state until all of it is there") {
  Joining joining = waiting();
  joining.initialise(/*load_left=*/3);
  CHECK(joining.load_left() == 3);
  joining.loading(2);
  CHECK(joining.load_left() == 2);
  joining.loading(3);  // it does not grow
  CHECK(joining.load_left() == 2);
  joining.loading(0);  // read, but not there yet
  CHECK(joining.load_left() == 1);
  CHECK(joining.initialising());
  joining.initialised();
  CHECK(joining.load_left() == 0);
  CHECK_FALSE(joining.initialising());
  CHECK_FALSE(joining.over());  // it has no version before its epoch begins
  joining.check_invariants();
}

TEST_CASE("joining: a state that is built has nothing to load") {
  Joining joining = waiting();
  joining.initialise(/*load_left=*/0);
  joining.loading(7);
  CHECK(joining.load_left() == 0);
  CHECK(joining.initialising());
}

TEST_CASE("joining: a life whose epoch stops before it has a state waits for another plan") {
  const auto stopped_at = [](auto&& come_to) {
    Joining joining = waiting();
    come_to(joining);
    CHECK_FALSE(joining.outside());
    joining.stop();
    joining.check_invariants();
    return joining;
  };
  for (Joining joining : {
           stopped_at([](Joining& j) { j.initialise(3); }),
           stopped_at([](Joining& j) { j.initialise(3), j.initialised(); }),
           stopped_at([](Joining& j) { j.join(); }),
       }) {
    CHECK(joining.outside());
    CHECK(joining.welcomed());
    CHECK(joining.load_left() == 0);
    joining.join();
    CHECK(joining.joiner());
  }
}

TEST_CASE("joining: who has a state never joins again, whatever its epochs do") {
  Joining joining = waiting();
  joining.join();
  joining.finish();
  joining.stop();
  CHECK(joining.over());
  CHECK_FALSE(joining.outside());
}

TEST_CASE("joining: to stop means nothing to one that no plan has named") {
  Joining joining = asking();
  joining.stop();
  CHECK(joining.question() != nullptr);
  CHECK_FALSE(joining.welcomed());
}

}  // namespace
}  // namespace starling::elastic
