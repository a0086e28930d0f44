#include "tools/chaos/agenda.h"

#include <doctest/doctest.h>

namespace starling::chaos {

TEST_CASE("what is due is done once, in the order of its time") {
  Agenda agenda;
  std::string done;
  agenda.later(2, [&](double) { done += "b"; });
  agenda.later(1, [&](double) { done += "a"; });
  agenda.later(9, [&](double) { done += "z"; });
  agenda.advance(0.5);
  CHECK(done.empty());
  agenda.advance(3);
  agenda.advance(4);
  CHECK(done == "ab");
  CHECK_FALSE(agenda.empty());
}

TEST_CASE("what is waited for is seen, or not in time") {
  Agenda agenda;
  bool there = false;
  int seen = 0, missed = 0;
  const auto count = [&](bool was_seen, double) { ++(was_seen ? seen : missed); };
  agenda.expect(
      5, [&] { return there; }, count);
  agenda.expect(
      2, [] { return false; }, count);
  agenda.advance(1);
  CHECK(seen + missed == 0);
  agenda.advance(3);
  CHECK(missed == 1);
  there = true;
  agenda.advance(4);
  agenda.advance(9);
  CHECK(seen == 1);
  CHECK(missed == 1);
  CHECK(agenda.empty());
}

TEST_CASE("a call may add to the agenda that it is on") {
  Agenda agenda;
  int calls = 0;
  agenda.later(1, [&](double now) {
    ++calls;
    agenda.later(now, [&](double) { ++calls; });
    agenda.expect(
        now + 1, [] { return true; }, [&](bool, double) { ++calls; });
  });
  agenda.advance(1);
  agenda.advance(1);
  CHECK(calls == 3);
  CHECK(agenda.empty());
}

}  // namespace starling::chaos
