// The leader's rules, each as a schedule of events: R10, R11, R13, R16. Its proposals are committed
// when the test says so.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "elastic/protocol/plan.h"
#include "elastic/protocol/shares.h"
#include "tests/elastic/leader_rig.h"

namespace starling::elastic {
namespace {

constexpr std::uint64_t kLease = 1000;  // ms
constexpr std::uint32_t kSegments = 4;

Bugs broken(bool Bugs::*rule) {
  Bugs bugs;
  bugs.*rule = true;
  return bugs;
}

// A leader in term 1, its log, and workers 1, 2, 3 who hold everything.
struct OneLeader : LeaderRig {
  explicit OneLeader(Bugs b = {}, std::uint32_t r = 2) : LeaderRig(b), bugs(b), replicas(r) {
    elect(1);
  }

  void elect(std::uint64_t term) {
    LeaderConfig config;
    config.micro_batches = 6;
    config.steps = 100;
    config.segments = kSegments;
    config.wanted_workers = 3;
    config.replicas = replicas;
    config.lease_ms = config.report_deadline_ms = kLease;
    config.bugs = bugs;
    lead(config, term);
  }
  // The first epoch runs, all are seen in it at this version.
  void begin(Version version) {
    apply(JobStarted{});
    for (std::uint64_t nonce : {1, 2, 3}) join(nonce);
    for (std::uint64_t nonce : {1, 2, 3}) report(nonce, asked(), {}, kNoVersion);
    commit();
    REQUIRE(group.plan().has_value());
    for (std::uint64_t nonce : {1, 2, 3}) say(nonce, Heartbeat{group.plan()->id, version, {}});
    sent.clear();
  }
  void report(std::uint64_t nonce, EpochId promise, EpochId entered, Version version,
              std::vector<Incarnation> broken = {}) {
    Report report;
    report.broken = std::move(broken);
    report.promise = promise;
    report.entered = entered;
    report.version = version;
    report.parameters_complete = version != kNoVersion;
    report.copies.assign(kSegments, version != kNoVersion);
    say(nonce, report);
  }
  const Plan* proposed() const { return first_proposed<Plan>(); }
  std::size_t plans_sent() const {
    return static_cast<std::size_t>(
        std::count_if(sent.begin(), sent.end(), [](const leader_command::Send& send) {
          return std::holds_alternative<Committed>(send.body);
        }));
  }

  Bugs bugs;
  std::uint32_t replicas;
};

// Nonces of its members, by rank: "123".
std::string members_of(const Plan& plan) {
  std::string nonces;
  for (const Member& m : plan.members) nonces += std::to_string(m.who.nonce);
  return nonces;
}

// Worker 1 has lost its connection to 3, which is dead; 1 and 2 report.
void lose_third(OneLeader& one) {
  const EpochId first = one.group.plan()->id;
  one.die(3);
  for (std::uint64_t nonce : {1, 2}) one.report(nonce, one.asked(), first, 5);
}

// R16. Method: a proposal that takes its time.
std::size_t plans_sent_before_the_commit(const Bugs& bugs) {
  OneLeader one(bugs);
  one.begin(5);
  lose_third(one);
  REQUIRE(one.proposed() != nullptr);
  CHECK(members_of(*one.proposed()) == "12");
  CHECK(one.proposed()->base == 5);
  one.pass_time(100);
  const std::size_t before = one.plans_sent();
  one.sent.clear();
  one.commit();
  CHECK(one.plans_sent() == 2);
  return before;
}

TEST_CASE("leader: R16, members hear of a plan when it is committed") {
  CHECK(plans_sent_before_the_commit({}) == 0);
  CHECK(plans_sent_before_the_commit(broken(&Bugs::r16_obey_proposals)) > 0);
}

TEST_CASE("leader: R10, it has one uncommitted plan at a time") {
  OneLeader one;
  one.begin(5);
  lose_third(one);
  REQUIRE(one.proposals.size() == 1);
  one.die(2);
  one.report(1, {1, 9}, one.group.plan()->id, 5);
  one.pass_time(5 * kLease);
  const auto plans = std::count_if(one.proposals.begin(), one.proposals.end(),
                                   [](const Entry& e) { return std::holds_alternative<Plan>(e); });
  CHECK(plans <= 1);
}

TEST_CASE("leader: R10, a new leader asks for reports at an id of its own term") {
  OneLeader one;
  one.begin(5);
  lose_third(one);
  one.elect(/*term=*/4);
  one.sent.clear();
  one.pass_time(1);
  CHECK(one.asked().term == 4);
  one.report(1, {1, 9}, {1, 1}, 5);  // what the old one had asked for
  one.report(2, {1, 9}, {1, 1}, 5);
  CHECK(one.proposed() == nullptr);
}

// R10. Method: two plans with the same predecessor, in either order of their ids.
// Goal: whoever reads the events knows every worker and epoch, whichever leader died when.
TEST_CASE("leader: a new one tells what the one before may not have come to tell") {
  OneLeader one;
  one.begin(5);
  lose_third(one);
  one.commit();
  one.join(4);
  one.elect(2);
  std::vector<std::string> told;
  for (const auto& command : one.leader->announce()) {
    const auto& seen = std::get<Observation>(command);
    if (seen.kind == Observation::Kind::kWorker) told.push_back(seen.name + " " + seen.what);
    if (seen.kind != Observation::Kind::kEpoch) continue;
    told.push_back("epoch " + members_of(seen.plan));
    CHECK(seen.resume_ms < 0);
  }
  CHECK(told == std::vector<std::string>{"1 joined", "2 joined", "3 joined", "3 lost", "4 joined",
                                         "epoch 12"});
}

TEST_CASE("group: R10, of two plans with one predecessor the first that is committed is valid") {
  const auto plan = [](EpochId id, EpochId predecessor) {
    Plan p;
    p.id = id;
    p.predecessor = predecessor;
    return p;
  };
  Group group;
  CHECK(group.apply(plan({1, 1}, {})));
  CHECK(group.apply(plan({1, 5}, {1, 1})));
  CHECK_FALSE(group.apply(plan({2, 1}, {1, 1})));
  CHECK_FALSE(group.apply(plan({1, 3}, {1, 5})));  // ids rise
  CHECK(group.plan()->id == EpochId{1, 5});
  CHECK(group.apply(plan({2, 2}, {1, 5})));
  Group any(broken(&Bugs::r10_ignore_predecessor));
  CHECK(any.apply(plan({1, 1}, {})));
  CHECK(any.apply(plan({1, 5}, {1, 1})));
  CHECK(any.apply(plan({2, 1}, {1, 1})));
}

// R11. Method: worker 3 is dead; the others report, but not what was asked for.
bool forms_on_other_promises(const Bugs& bugs) {
  OneLeader one(bugs);
  one.begin(5);
  const EpochId first = one.group.plan()->id;
  one.die(3);
  for (std::uint64_t nonce : {1, 2}) one.report(nonce, first, first, 5);
  one.commit();
  return one.group.plan()->id != first;
}

TEST_CASE("leader: R11, a report counts for the id that it promises") {
  CHECK_FALSE(forms_on_other_promises({}));
  CHECK(forms_on_other_promises(broken(&Bugs::r11_any_report)));
}

// R11. Method: worker 3 falls silent and is left out; then it is heard again, with a report for the
// plan after that.
bool takes_back_who_was_left_out(const Bugs& bugs) {
  OneLeader one(bugs);
  one.begin(5);
  const EpochId first = one.group.plan()->id;
  for (std::uint64_t nonce : {1, 2}) one.report(nonce, {1, 2}, first, 5);
  one.pass_time(2 * kLease);
  for (std::uint64_t nonce : {1, 2}) one.report(nonce, one.asked(), first, 5);
  one.commit();
  if (members_of(*one.group.plan()) != "12") return true;
  const EpochId second = one.group.plan()->id;
  one.die(2);
  one.report(3, one.asked(), first, 5);
  one.report(1, one.asked(), second, 5);
  REQUIRE(one.proposed() != nullptr);
  return members_of(*one.proposed()) != "1";
}

TEST_CASE("leader: R11, who was left out does not come back with its old state") {
  CHECK_FALSE(takes_back_who_was_left_out({}));
  CHECK(takes_back_who_was_left_out(broken(&Bugs::r11_any_member)));
}

// Two plans end with 1 and 2 naming each other. Method: in the second, worker 3 is lost or not.
std::string left_after_two_breaks(bool lost) {
  OneLeader one;
  one.begin(5);
  const auto breaks = [&](const std::vector<std::uint64_t>& reporters) {
    const EpochId running = one.group.plan()->id;
    const auto report_all = [&](EpochId promise) {
      for (const std::uint64_t n : reporters)
        one.report(n, promise, running, 5,
                   n <= 2 ? std::vector<Incarnation>{{3 - n, 3 - n}} : std::vector<Incarnation>{});
    };
    report_all({running.term, running.counter + 1});  // unasked
    report_all(one.asked());
    one.commit();
  };
  breaks({1, 2, 3});
  CHECK(members_of(*one.group.plan()) == "123");  // once is no reason
  if (lost) one.die(3);
  breaks(lost ? std::vector<std::uint64_t>{1, 2} : std::vector<std::uint64_t>{1, 2, 3});
  return members_of(*one.group.plan());
}

TEST_CASE("leader: of two members whose link broke two plans, the next leaves one out") {
  CHECK(left_after_two_breaks(false) == "13");
}

TEST_CASE("leader: a loss breaks all links, and none of them is a reason to leave anybody out") {
  CHECK(left_after_two_breaks(true) == "12");
}

// Worker 4 joins three that run; the others cannot connect to it, and all stop.
struct Unreachable4 {
  Unreachable4() { one.begin(5); }
  void join(std::uint64_t nonce) {
    Join join;
    join.who = {0, nonce};
    join.name = "4";
    join.host = "10.1.2.3";
    join.port = 77;
    join.fingerprint = {7, 7};
    one.on(leader_event::Said{{nonce, nonce}, "4", join});
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
      one.report(1, promise, running, 5, {{4, nonce}});
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
};

TEST_CASE("leader: a joiner that nobody can connect to is left out, and nobody else") {
  Unreachable4 joiner;
  joiner.join(4);
  CHECK(joiner.breaks(4) == "1234 123");
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

// A leaver and its notice. Method: worker 3 announces its leave, and all are seen in the plan that
// drains it. With r = 1 what it holds has one more copy, with r = 0 none.
struct Leaver3 {
  explicit Leaver3(std::uint32_t replicas) : one({}, replicas) {
    one.begin(5);
    one.say(3, Leave{5 * kLease});
    one.commit();
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

// R11, the fence. Method: worker 3 announces its leave, and the plan without it is committed;
// nobody is seen in it. Then only the leaver reports.
struct Fenced3 {
  explicit Fenced3(Bugs bugs = {}) : one(bugs) {
    one.begin(5);
    first = one.group.plan()->id;
    one.say(3, Leave{60000});
    one.commit();
    REQUIRE(one.group.plan()->kind == PlanKind::kPrepared);
    REQUIRE(members_of(*one.group.plan()) == "12");
    second = one.group.plan()->id;
    one.pass_time(2 * kLease);
    one.report(3, one.asked(), first, 6);
    one.pass_time(2 * kLease);
  }
  OneLeader one;
  EpochId first, second;
};

TEST_CASE("leader: R11, a leaver alone does not fence the epoch that goes on without it") {
  Fenced3 waits;
  CHECK(waits.one.proposed() == nullptr);
  SUBCASE("one that went on reports") {
    waits.one.report(1, waits.one.asked(), waits.second, 9);
    REQUIRE(waits.one.proposed() != nullptr);
    CHECK(waits.one.proposed()->base == 9);
    CHECK(members_of(*waits.one.proposed()) == "1");
  }
  SUBCASE("one that had not switched yet reports") {
    waits.one.report(1, waits.one.asked(), waits.first, 6);
    REQUIRE(waits.one.proposed() != nullptr);
    CHECK(waits.one.proposed()->base == 6);
    CHECK(members_of(*waits.one.proposed()) == "13");
  }
  SUBCASE("all others are certainly dead") {
    for (std::uint64_t nonce : {1, 2}) waits.one.die(nonce);
    REQUIRE(waits.one.group.plan()->id > waits.second);
    CHECK(members_of(*waits.one.group.plan()) == "3");
  }
  SUBCASE("without the fence it goes on with the leaver") {
    Fenced3 formed(broken(&Bugs::r11_no_fence));
    REQUIRE(formed.one.proposed() != nullptr);
    CHECK(members_of(*formed.one.proposed()) == "3");
  }
}

// Joiners have seen no vote, so the plan says who computes what in the first step.
TEST_CASE("leader: a prepared plan shares its first step by the speeds that members told") {
  OneLeader one;
  one.begin(5);
  const EpochId first = one.group.plan()->id;
  for (std::uint64_t nonce : {1, 2, 3})
    one.say(nonce, Heartbeat{first, 5, {}, nonce == 3 ? 10u : 40u});
  one.join(4);
  one.pass_time(kLease / 2);
  REQUIRE(one.proposed() != nullptr);
  REQUIRE(members_of(*one.proposed()) == "1234");
  CHECK(one.proposed()->shares == std::vector<Rank>{0, 1, 2, 2, 2, 2});
}

TEST_CASE("leader: in its first step a joiner counts as the median of the others") {
  OneLeader one;
  one.begin(5);
  const EpochId first = one.group.plan()->id;
  for (std::uint64_t nonce : {1, 2, 3}) one.say(nonce, Heartbeat{first, 5, {}, 10});
  one.join(4);
  one.pass_time(kLease / 2);
  REQUIRE(one.proposed() != nullptr);
  REQUIRE(members_of(*one.proposed()) == "1234");
  CHECK(one.proposed()->shares == std::vector<Rank>{0, 0, 1, 1, 2, 3});
}

TEST_CASE("leader: where nobody told its speed, a prepared plan has equal shares") {
  OneLeader one;
  one.begin(5);
  one.join(4);
  one.pass_time(kLease / 2);
  REQUIRE(one.proposed() != nullptr);
  CHECK(one.proposed()->shares == equal_shares(one.proposed()->members.size(), 6));
}

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

// R13. Method: a joiner waits when worker 3 dies.
bool joiner_holds(const Bugs& bugs) {
  OneLeader one(bugs);
  one.begin(5);
  one.join(4);
  const EpochId first = one.group.plan()->id;
  one.die(3);
  for (std::uint64_t nonce : {1, 2}) one.report(nonce, one.asked(), first, 5);
  one.report(4, one.asked(), {}, kNoVersion);
  REQUIRE(one.proposed() != nullptr);
  const Plan& plan = *one.proposed();
  REQUIRE(members_of(plan) == "124");
  CHECK(plan.members[2].joiner);
  return std::any_of(plan.holders.begin(), plan.holders.end(), [](const auto& holders) {
    return std::count(holders.begin(), holders.end(), Rank{2}) != 0;
  });
}

TEST_CASE("leader: R13, a member without a current copy holds nothing yet") {
  CHECK_FALSE(joiner_holds({}));
  CHECK(joiner_holds(broken(&Bugs::r13_any_owner)));
}

}  // namespace
}  // namespace starling::elastic
