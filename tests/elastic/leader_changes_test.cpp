// Changes that stop nobody, and who is left out of them, each as a schedule of events: whom the
// leader lets in and when, when leavers go, who computes what in the first step.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "elastic/protocol/shares.h"
#include "tests/elastic/one_leader.h"

namespace starling::elastic {
namespace {

// Goal: many who come at once cost as few epochs as one. Method: sixty-four joins, one every
// `apart_ms`; everybody is heard all the time and enters each plan as soon as it is committed.
// How many each plan lets in; those that follow finished moves let in nobody.
std::vector<std::ptrdiff_t> let_in(std::uint64_t apart_ms) {
  constexpr std::uint64_t kJoiners = 64;
  OneLeader one;
  one.begin(5);
  std::vector<std::ptrdiff_t> plans;
  Version version = 5;
  const auto live_on = [&](std::uint64_t ms) {
    one.pass_time(ms);
    if (const Plan* plan = one.proposed()) {
      CHECK(plan->kind == PlanKind::kPrepared);
      const auto joiners = std::count_if(plan->members.begin(), plan->members.end(),
                                         [](const Member& m) { return m.joiner; });
      if (joiners > 0) plans.push_back(joiners);
      one.commit();
    }
    ++version;
    const Plan running = *one.group.plan();
    for (const Member& m : running.members)
      one.say(m.who.nonce, Heartbeat{running.id, version, {}});
  };
  for (std::uint64_t n = 0; n < kJoiners; ++n) {
    one.join(4 + n);
    live_on(apart_ms);
  }
  for (int i = 0; i < 100; ++i) live_on(kLease / 100);
  CHECK(one.group.plan()->members.size() == 3 + kJoiners);
  return plans;
}

TEST_CASE("leader: sixty-four joins within the window are one prepared plan") {
  CHECK(let_in(/*apart_ms=*/0) == std::vector<std::ptrdiff_t>{64});
  CHECK(let_in(/*apart_ms=*/1) == std::vector<std::ptrdiff_t>{64});
}

TEST_CASE("leader: of joins that go on for longer each window is one prepared plan") {
  CHECK(let_in(/*apart_ms=*/5) == std::vector<std::ptrdiff_t>{20, 20, 20, 4});
}

// Worker 4 joins three that run; the others cannot connect to it, or lose the connection, and all
// stop.
struct Unreachable4 {
  explicit Unreachable4(bool stood = false) : stood_(stood) { one.begin(5); }
  void join(std::uint64_t nonce) {
    Join join;
    join.who = {0, Nonce(nonce)};
    join.name = "4";
    join.host = "10.1.2.3";
    join.port = 77;
    join.fingerprint = {7, 7};
    one.on(leader_event::Said{{nonce, Nonce(nonce)}, "4", join});
    one.commit();
  }
  // Members of the plan that follows, of the prepared one with the joiner first.
  std::string breaks(std::uint64_t nonce) {
    one.pass_time(kLease / 2);  // the window of joins
    for (std::uint64_t n : {1, 2, 3}) one.say(n, Heartbeat{one.group.plan()->id, 5, {}});
    one.commit();
    std::string members = members_of(*one.group.plan()) + " ";
    const EpochId running = one.group.predecessor()->id;
    const auto report_all = [&](EpochId promise) {
      one.report(1, promise, running, 5, {{4, Nonce(nonce)}}, {},
                 stood_ ? LinkFault::kEnded : LinkFault::kUnreached);
      one.report(2, promise, running, 5, {{1, 1}});  // closed because it stopped
      one.report(3, promise, running, 5, {{1, 1}});
      one.report(nonce, promise, {}, kNoVersion, {{2, 2}});
    };
    report_all(one.group.plan()->id.next());  // unasked
    report_all(one.asked());
    one.commit();
    members += members_of(*one.group.plan());
    for (std::uint64_t n : {1, 2, 3}) one.say(n, Heartbeat{one.group.plan()->id, 5, {}});
    return members;
  }
  std::string refused() const {
    for (const auto& send : one.sent)
      if (const auto* refused = std::get_if<Refused>(&send.body)) return refused->reason;
    return "";
  }
  OneLeader one;

 private:
  bool stood_;
};

TEST_CASE("leader: a joiner that nobody can connect to is left out, and nobody else") {
  Unreachable4 joiner;
  joiner.join(4);
  CHECK(joiner.breaks(4) == "1243 123");
}

TEST_CASE("leader: after three lives that nobody could connect to it is told so") {
  Unreachable4 joiner;
  for (const std::uint64_t nonce : {4, 5, 6}) {
    joiner.join(nonce);
    joiner.breaks(nonce);
  }
  CHECK(joiner.refused() == "");
  joiner.join(7);
  CHECK(joiner.refused().find("cannot connect to 4 at 10.1.2.3:77") != std::string::npos);
}

TEST_CASE("leader: a worker whose link was cut is let in after the cut, however long it was") {
  Unreachable4 joiner;
  joiner.join(4);
  joiner.one.say(4, Heartbeat{{}, 5, {}});  // it has had a state: its address is good
  for (const std::uint64_t nonce : {4, 5, 6}) {
    if (nonce != 4) joiner.join(nonce);
    joiner.breaks(nonce);
  }
  joiner.join(7);
  CHECK(joiner.refused() == "");
  CHECK(joiner.one.group.workers().size() == 6);
  joiner.one.pass_time_hearing({1, 2, 3}, 10001);
  joiner.join(7);
  CHECK(joiner.one.group.workers().size() == 7);
}

// A network that breaks connections now and then says nothing of the joiner's address.
TEST_CASE("leader: after three lives whose connections stood and broke it is still let in") {
  Unreachable4 joiner(/*stood=*/true);
  for (const std::uint64_t nonce : {4, 5, 6, 7}) {
    joiner.join(nonce);
    CHECK(joiner.breaks(nonce) == "12" + std::to_string(nonce) + "3 123");
  }
  CHECK(joiner.refused() == "");
}

// The first plan's members hold nothing, as joiners do.
TEST_CASE("leader: the first plan goes on without a worker that nobody can connect to") {
  OneLeader one;
  one.apply(JobStarted{});
  for (const std::uint64_t nonce : {1, 2, 3}) one.join(nonce);
  for (const std::uint64_t nonce : {1, 2, 3}) one.report(nonce, one.asked(), {}, kNoVersion);
  one.commit();
  const EpochId first = one.group.plan()->id;
  REQUIRE(members_of(*one.group.plan()) == "123");
  const auto report_all = [&](EpochId promise) {
    one.report(1, promise, first, kNoVersion, {{2, 2}}, {}, LinkFault::kUnreached);
    one.report(2, promise, first, kNoVersion, {{3, 3}});
    one.report(3, promise, first, kNoVersion, {{1, 1}});
  };
  report_all(first.next());
  report_all(one.asked());
  one.commit();
  CHECK(members_of(*one.group.plan()) == "13");
  CHECK(one.group.plan()->kind == PlanKind::kFresh);
  one.sent.clear();
  one.say(2, Heartbeat{first, kNoVersion, {}});
  std::string told;
  for (const auto& send : one.sent)
    if (const auto* fenced = std::get_if<Fenced>(&send.body)) told = fenced->reason;
  CHECK(told.find("others cannot connect to it at ") != std::string::npos);
}

TEST_CASE("leader: who dies while its join is being committed is in no plan") {
  OneLeader one;
  one.begin(5);
  one.ask_to_join(4);
  one.say(4, Death{{0, 4}});
  one.commit();
  one.pass_time(kLease / 2);  // the window of joins
  CHECK(one.proposed() == nullptr);
  CHECK(one.group.find({0, 4})->dead);
}

TEST_CASE("leader: a joiner's death is not the first notice of a member's") {
  struct Watched : OneLeader {
    void take(const LeaderCommand& command) override {
      const auto* event = std::get_if<Event>(&command);
      const auto* epoch = event ? std::get_if<event::EpochFormed>(event) : nullptr;
      if (epoch && epoch->kind == PlanKind::kForced) detect_ms = epoch->detect_ms;
    }
    std::optional<double> detect_ms;
  } one;
  one.begin(5);
  const EpochId first = one.group.plan()->id;
  one.join(4);
  one.die(4);
  one.pass_time(kLease / 2);
  one.die(3);
  for (std::uint64_t nonce : {1, 2}) one.report(nonce, one.asked(), first, 5);
  one.commit();
  one.apply(JobEnded{});  // before a step was told
  CHECK(one.detect_ms == 0);
}

// A leaver and its notice. Method: worker 3 announces its leave, and all are seen in the plan that
// drains it. With r = 1 what it holds has one more copy, with r = 0 none.
struct Leaver3 {
  explicit Leaver3(std::uint32_t replicas) : one({}, replicas) {
    one.begin(5);
    one.leave(3, 5 * kLease);
    one.say(3, Leave{5 * kLease});  // from here on
    const Plan& plan = *one.group.plan();
    REQUIRE(members_of(plan) == "123");
    REQUIRE(plan.members[2].draining);
    REQUIRE_FALSE(plan.moves.empty());
    seen_at(6);
    REQUIRE(one.proposed() == nullptr);
  }
  void seen_at(Version version) {
    for (std::uint64_t nonce : {1, 2, 3})
      one.say(nonce, Heartbeat{one.group.plan()->id, version, {}});
  }
  // All are heard, and no step passes.
  void live_on(std::uint64_t ms) {
    for (; ms > 0 && one.proposed() == nullptr; ms -= std::min(ms, kLease / 2)) {
      one.pass_time(std::min(ms, kLease / 2));
      seen_at(6);
    }
  }
  std::string goes_on() const {
    const Plan* plan = one.proposed();
    return plan && plan->kind == PlanKind::kPrepared ? members_of(*plan) : "";
  }
  OneLeader one;
};

// Whom a plan drains after workers 2 and 3 announced their leaves 50 ms apart; and how long after
// the first one it came.
std::string drained(std::uint64_t notice_ms, std::uint64_t& after_ms) {
  OneLeader one({}, /*replicas=*/1);
  one.begin(5);
  one.say(2, Leave{notice_ms});
  one.commit();
  std::string names;
  for (after_ms = 0; names.empty() && after_ms < kLease; after_ms += 10) {
    one.pass_time(10);
    if (after_ms == 50) one.say(3, Leave{notice_ms});
    one.commit();
    for (const Member& m : one.group.plan()->members)
      if (m.draining) names += std::to_string(m.who.nonce);
  }
  return names;
}

TEST_CASE("leader: leaves within the window are one plan, unless a notice is too short for that") {
  std::uint64_t after_ms = 0;
  CHECK(drained(60000, after_ms) == "23");
  CHECK(after_ms == LeaderConfig{}.change_window_ms);
  CHECK(drained(kLease + 50, after_ms) == "2");
  CHECK(after_ms <= 10);
}

TEST_CASE("leader: a leaver goes when r+1 current copies exist without it") {
  Leaver3 leaver(/*replicas=*/1);
  leaver.seen_at(50);  // past the last move
  CHECK(leaver.goes_on() == "12");
}

TEST_CASE("leader: a leaver computes until it leaves") {
  Leaver3 leaver(/*replicas=*/1);
  CHECK(leaver.one.group.plan()->shares == std::vector<Rank>{0, 0, 1, 1, 2, 2});
}

TEST_CASE("leader: a leaver without r+1 copies goes one lease before its notice ends") {
  Leaver3 leaver(/*replicas=*/1);
  leaver.live_on(4 * kLease);
  CHECK(leaver.one.proposed() == nullptr);
  SUBCASE("if somebody has what it holds") {
    leaver.live_on(1);
    CHECK(leaver.goes_on() == "12");
  }
  SUBCASE("and its last word counts") {
    leaver.one.say(3, Leave{30 * kLease});
    leaver.live_on(10 * kLease);
    CHECK(leaver.one.proposed() == nullptr);
    leaver.one.say(3, Leave{kLease / 2});
    CHECK(leaver.goes_on() == "12");
  }
}

TEST_CASE("leader: a leaver that alone has some state stays until its notice ends") {
  Leaver3 leaver(/*replicas=*/0);
  leaver.live_on(6 * kLease);
  CHECK(leaver.one.proposed() == nullptr);
  leaver.seen_at(50);  // past the last move
  CHECK(leaver.goes_on() == "12");
}

// Of the prepared plan that lets worker 4 in, when workers 1 to 3 told what a micro-batch takes.
// Joiners have seen no vote, so the plan says who computes what in the first step.
std::vector<Rank> shares_with_a_joiner(const std::vector<std::uint64_t>& micro_batch_ns) {
  OneLeader one;
  one.begin(5);
  const EpochId first = one.group.plan()->id;
  for (std::uint64_t nonce : {1, 2, 3})
    one.say(nonce, Heartbeat{first, 5, {}, micro_batch_ns[nonce - 1]});
  one.join(4);
  one.pass_time(kLease / 2);
  REQUIRE(one.proposed() != nullptr);
  REQUIRE(members_of(*one.proposed()) == "1243");
  return one.proposed()->shares;
}

TEST_CASE("leader: a prepared plan shares its first step by the speeds that members told") {
  CHECK(shares_with_a_joiner({40, 40, 10}) == std::vector<Rank>{0, 1, 2, 3, 3, 3});
}

TEST_CASE("leader: in its first step a joiner counts as the median of the others") {
  CHECK(shares_with_a_joiner({10, 10, 10}) == std::vector<Rank>{0, 0, 1, 1, 2, 3});
}

TEST_CASE("leader: where nobody told its speed, a prepared plan has equal shares") {
  OneLeader one;
  one.begin(5);
  one.join(4);
  one.pass_time(kLease / 2);
  REQUIRE(one.proposed() != nullptr);
  CHECK(one.proposed()->shares ==
        first_shares(std::vector<Capacity>(one.proposed()->members.size()), 6));
}

}  // namespace
}  // namespace starling::elastic
