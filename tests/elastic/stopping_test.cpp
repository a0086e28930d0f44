// R9: what a worker promises when it has stopped, and when.

#include "elastic/protocol/stopping.h"

#include <doctest/doctest.h>

namespace starling::elastic {
namespace {

constexpr EpochId kRun{1, 4};

std::shared_ptr<const Plan> plan_of(EpochId id, std::vector<Incarnation> members = {}) {
  Plan plan;
  plan.id = id;
  for (const Incarnation& who : members) plan.members.push_back({.who = who});
  return std::make_shared<const Plan>(std::move(plan));
}

TEST_CASE("stopping: R9, a report is due when everything of the epoch is closed") {
  Stopping stopping;
  stopping.seen(kRun);
  CHECK_FALSE(stopping.promise().has_value());  // it goes on
  stopping.stop({}, LinkFault::kEnded);
  stopping.close(plan_of(kRun));
  stopping.close(plan_of({1, 5}));
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

TEST_CASE("stopping: what broke an epoch that closes is told, unless it is an end of file") {
  struct Case {
    const char* name;
    LinkFault first, then;
    EpochId of;
    Rank peer;
    LinkFault told;
    std::vector<Incarnation> broken;
  };
  const Incarnation me{1, 1}, other{2, 2}, third{3, 3};
  const Case cases[] = {
      {"silent", LinkFault::kEnded, LinkFault::kSilent, kRun, 2, LinkFault::kSilent, {third}},
      {"ended, as all links do now",
       LinkFault::kEnded,
       LinkFault::kEnded,
       kRun,
       2,
       LinkFault::kEnded,
       {}},
      {"the first fault stays",
       LinkFault::kUnreached,
       LinkFault::kSilent,
       kRun,
       2,
       LinkFault::kUnreached,
       {other}},
      {"of no epoch that closes",
       LinkFault::kEnded,
       LinkFault::kSilent,
       {1, 3},
       2,
       LinkFault::kEnded,
       {}},
      {"of no member", LinkFault::kEnded, LinkFault::kSilent, kRun, 3, LinkFault::kEnded, {}},
      {"of nobody", LinkFault::kEnded, LinkFault::kSilent, kRun, kNoRank, LinkFault::kEnded, {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Stopping stopping;
    std::vector<Incarnation> broken;
    if (c.first != LinkFault::kEnded) broken = {other};
    stopping.stop(broken, c.first);
    stopping.close(plan_of(kRun, {me, other, third}));
    stopping.broke(c.of, c.peer, c.then);
    CHECK(stopping.fault() == c.told);
    CHECK(stopping.broken() == c.broken);
    stopping.check_invariants();
  }
}

}  // namespace
}  // namespace starling::elastic
