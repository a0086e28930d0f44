// The rules of epochs at one worker, each as a schedule of events: R9, R15, and a joiner's way in.

#include <doctest/doctest.h>

#include "tests/elastic/one_worker.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

using namespace worker_event;
using namespace worker_command;

// R9. Method: an epoch runs and a prepared one is being connected; a connection breaks, or the
// leader asks. Whatever was begun must be stopped before the report is sent, and nothing of it has
// any effect after it.
std::size_t said_after_the_report(const Bugs& bugs, bool asked) {
  OneWorker one(bugs);
  one.begin();
  one.pass(kFirst, 0);
  one.receive(Committed{OneWorker::plan(PlanKind::kPrepared, kSecond, kFirst)});
  one.forget();
  if (asked)
    one.receive(Freeze{{2, 7}});
  else
    one.on(Broken{kFirst, 2});
  std::size_t sent = 0;
  if (!one.said<Report>().empty()) {  // too soon: what does the epoch still do?
    one.forget();
    one.vote_for(kFirst, 1);
    return one.count<EndShare>() + one.count<SendVote>();
  }
  CHECK(one.count<Stop>() == 2);
  one.on(Stopped{kSecond});
  CHECK(one.said<Report>().empty());
  one.on(Stopped{kFirst});
  const auto reports = one.said<Report>();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].promise == (asked ? EpochId{2, 7} : EpochId{1, 3}));
  CHECK(reports[0].entered == kFirst);
  one.forget();
  one.vote_for(kFirst, 1);
  for (Rank from : {Rank{1}, Rank{2}}) one.vote(kFirst, 1, from);
  one.on(Connected{kSecond});
  sent += one.all.size();
  CHECK(one.worker.version() == 1);
  return sent;
}

TEST_CASE("worker: R9, a report comes after everything is stopped, and nothing comes after it") {
  CHECK(said_after_the_report({}, /*asked=*/false) == 0);
  CHECK(said_after_the_report({}, /*asked=*/true) == 0);
  CHECK(said_after_the_report(broken(&Bugs::r9_keep_sending), /*asked=*/true) > 0);
}

// R9. Method: after a promise of 2.7, plans of every kind and id.
bool enters(const Bugs& bugs, PlanKind kind, EpochId id) {
  OneWorker one(bugs);
  one.begin();
  one.pass(kFirst, 0);
  one.receive(Freeze{{2, 7}});
  one.on(Stopped{kFirst});
  one.forget();
  one.receive(Committed{OneWorker::plan(kind, id, kFirst, /*base=*/1)});
  return one.count<Connect>() > 0;
}

TEST_CASE("worker: R9, it enters no plan below its promise, and once stopped only forced ones") {
  struct Case {
    PlanKind kind;
    EpochId id;
    bool entered;
  };
  const Case cases[] = {
      {PlanKind::kForced, {1, 9}, false},   {PlanKind::kForced, {2, 6}, false},
      {PlanKind::kForced, {2, 7}, true},    {PlanKind::kForced, {3, 1}, true},
      {PlanKind::kPrepared, {2, 6}, false}, {PlanKind::kPrepared, {2, 7}, false},
      {PlanKind::kPrepared, {3, 1}, false},
  };
  for (const Case& c : cases) {
    CAPTURE(to_string(c.id));
    CHECK(enters({}, c.kind, c.id) == c.entered);
  }
  CHECK(enters(broken(&Bugs::r9_enter_below_promise), PlanKind::kForced, {2, 6}));
}

Notice leave_in(std::uint64_t ms) {
  return {"aws", "terminate", ms, true};
}

TEST_CASE("worker: of several notices the one that ends first counts") {
  for (const bool shorter_first : {true, false}) {
    OneWorker one;
    one.begin();
    one.on(Tick{1});
    one.on(NoticeGiven{leave_in(shorter_first ? 2000 : 9000)});
    one.on(NoticeGiven{leave_in(shorter_first ? 9000 : 2000)});
    CHECK(one.said<starling::Leave>().back().notice_ms == 2000);
    one.on(Tick{2000});
    CHECK(one.count<Exit>() == 0);
    one.on(Tick{2001});
    REQUIRE(one.count<Exit>() == 1);
    CHECK(OneWorker::among<Exit>(one.all)[0].code == 143);
  }
}

TEST_CASE("worker: coordinators are told of every notice once, and of a leave until it is over") {
  OneWorker one;
  one.begin();
  one.on(Tick{1});
  one.on(NoticeGiven{leave_in(60000)});
  for (std::uint64_t now = 100; now < 2000; now += 100) one.on(Tick{now});
  CHECK(one.said<Notice>() == std::vector<Notice>{leave_in(60000)});
  CHECK(one.said<starling::Leave>().size() > 10);
  CHECK(one.said<starling::Leave>().back().notice_ms < 60000 - 1500);
}

TEST_CASE("worker: a hint is passed on, after the welcome, and nothing follows from it") {
  const Notice hint{"aws", "rebalance", 0, false};
  OneWorker one;
  Join join;
  join.who = {0, 1};
  one.on(Start{join});
  one.on(Tick{1});
  one.on(NoticeGiven{hint});
  CHECK(one.said<Notice>().empty());
  one.begin();
  one.on(Tick{1000});
  CHECK(one.said<Notice>() == std::vector<Notice>{hint});
  CHECK(one.said<starling::Leave>().empty());
  CHECK(one.count<Exit>() == 0);
}

TEST_CASE("worker: with notice before it has joined, it ends") {
  OneWorker one;
  Join join;
  join.who = {0, 1};
  one.on(Start{join});
  one.on(NoticeGiven{leave_in(60000)});
  REQUIRE(one.count<Exit>() == 1);
  CHECK(OneWorker::among<Exit>(one.all)[0].code == 0);
}

TEST_CASE("worker: who ends before it has joined tells that it is dead, as a plan may name it") {
  OneWorker one;
  Join join;
  join.who = {0, 1};
  one.on(Start{join});
  one.receive(Welcome{{1, 1}, ""});
  one.on(NoticeGiven{leave_in(60000)});
  REQUIRE(one.said<Death>().size() == 1);
  CHECK(one.said<Death>()[0].who == Incarnation{1, 1});
}

// R15. Method: this worker is ready for the prepared plan; the votes of the others say what they
// are ready for. Or it is not ready itself.
bool switches(const Bugs& bugs, bool self_ready, EpochId second, EpochId third) {
  OneWorker one(bugs);
  one.begin();
  one.receive(Committed{OneWorker::plan(PlanKind::kPrepared, kSecond, kFirst)});
  if (self_ready) one.on(Connected{kSecond});
  one.vote_for(kFirst, 0);
  const auto votes = OneWorker::among<SendVote>(one.all);
  REQUIRE(votes.size() == 1);
  CHECK(votes[0].vote.ready_for == (self_ready ? kSecond : EpochId{}));
  one.vote(kFirst, 0, 1, second);
  one.vote(kFirst, 0, 2, third);
  CHECK(one.worker.version() == 1);
  const bool switched = one.worker.entered() == kSecond;
  CHECK(one.count<worker_command::Leave>() == (switched ? 1 : 0));
  CHECK(OneWorker::among<StartGather>(one.all).back().epoch == one.worker.entered());
  return switched;
}

TEST_CASE("worker: R15, the first vote in which all are ready switches, and no other") {
  const EpochId none{}, other{1, 3};
  CHECK(switches({}, true, kSecond, kSecond));
  CHECK_FALSE(switches({}, true, kSecond, none));
  CHECK_FALSE(switches({}, true, none, kSecond));
  CHECK_FALSE(switches({}, true, kSecond, other));
  CHECK_FALSE(switches({}, false, kSecond, kSecond));
  CHECK(switches(broken(&Bugs::r15_switch_early), true, none, none));
}

// R15. Method: a plan with a joiner; connections alone do not make ready, its word does.
TEST_CASE("worker: R15, ready for a plan means that its joiners said so") {
  OneWorker one;
  one.begin();
  Plan plan = OneWorker::plan(PlanKind::kPrepared, kSecond, kFirst);
  plan.members.push_back(OneWorker::member(4));
  plan.members.back().joiner = true;
  one.receive(Committed{plan});
  one.on(Connected{kSecond});
  one.vote_for(kFirst, 0);
  CHECK(OneWorker::among<SendVote>(one.all).back().vote.ready_for == EpochId{});
  for (Rank from : {Rank{1}, Rank{2}}) one.vote(kFirst, 0, from);
  one.on(Gathered{kFirst, 1});
  one.on(PeerReady{kSecond, 3});
  one.vote_for(kFirst, 1);
  CHECK(OneWorker::among<SendVote>(one.all).back().vote.ready_for == kSecond);
}

}  // namespace
}  // namespace starling::elastic
