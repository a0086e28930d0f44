// R9: what a worker promises when it has stopped, and when.

#include "elastic/protocol/stopping.h"

#include <doctest/doctest.h>

namespace starling::elastic {
namespace {

constexpr EpochId kRun{1, 4};

TEST_CASE("stopping: R9, a report is due when everything of the epoch is closed") {
  Stopping stopping;
  stopping.seen(kRun);
  CHECK_FALSE(stopping.promise().has_value());  // it goes on
  stopping.stop({}, LinkFault::kEnded);
  stopping.close(kRun);
  stopping.close({1, 5});
  CHECK_FALSE(stopping.promise().has_value());
  stopping.closed(kRun);
  CHECK_FALSE(stopping.promise().has_value());
  stopping.closed({1, 5});
  CHECK(stopping.promise().has_value());
  stopping.check_invariants();
}

TEST_CASE("stopping: R9, the promise is what was asked for if no plan is above it") {
  struct Case {
    const char* name;
    EpochId seen, asked, promise;
  };
  const Case cases[] = {
      {"nobody asked: above every plan", {1, 4}, {}, {1, 5}},
      {"asked above every plan", {1, 4}, {1, 9}, {1, 9}},
      {"asked before a plan was seen", {1, 9}, {1, 7}, {1, 10}},
      {"asked for the id of the plan that it runs", {1, 4}, {1, 4}, {1, 5}},
      {"a new term", {1, 4}, {2, 1}, {2, 1}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Stopping stopping;
    stopping.seen(c.seen);
    stopping.asked(c.asked);
    stopping.report();
    CHECK(stopping.promise() == c.promise);
    CHECK(stopping.may_enter(c.promise));
    CHECK_FALSE(stopping.may_enter(kRun));
  }
}

TEST_CASE("stopping: R9, a promise never falls, and holds when the worker goes on") {
  Stopping stopping;
  stopping.asked({2, 7});
  stopping.report();
  CHECK(stopping.promise() == EpochId{2, 7});
  stopping.asked({1, 9});  // said late, by an older leader
  CHECK(stopping.promise() == EpochId{2, 7});
  stopping.enters();
  CHECK_FALSE(stopping.stopped());
  CHECK_FALSE(stopping.may_enter({2, 6}));
  CHECK(stopping.may_enter({2, 7}));
}

TEST_CASE("stopping: who has left by a switch reports when it is asked to, not before") {
  Stopping stopping;
  stopping.leaves();
  CHECK(stopping.stopped());
  CHECK_FALSE(stopping.promise().has_value());
  stopping.report();
  CHECK(stopping.promise().has_value());
}

TEST_CASE("stopping: broken links are told until the next plan is entered") {
  Stopping stopping;
  stopping.stop({{3, 3}}, LinkFault::kUnreached);
  CHECK(stopping.broken().size() == 1);
  CHECK(stopping.fault() == LinkFault::kUnreached);
  stopping.enters();
  CHECK(stopping.broken().empty());
  CHECK(stopping.fault() == LinkFault::kEnded);
}

}  // namespace
}  // namespace starling::elastic
