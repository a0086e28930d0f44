// The leader's rules, each as a schedule of events: R10, R11, R13, R16. Its proposals are committed
// when the test says so.

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "elastic/protocol/plan.h"
#include "tests/elastic/one_leader.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

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
    const auto& event = std::get<Event>(command);
    if (const auto* worker = std::get_if<event::WorkerChanged>(&event))
      told.push_back(worker->name + " " + to_string(worker->what));
    const auto* epoch = std::get_if<event::EpochFormed>(&event);
    if (!epoch) continue;
    told.push_back("epoch of " + std::to_string(epoch->members.size()));
    CHECK_FALSE(epoch->resume_ms);
  }
  CHECK(told == std::vector<std::string>{"1 joined", "2 joined", "3 joined", "3 lost", "4 joined",
                                         "epoch of 2"});
}

// R10. Method: two plans with the same predecessor, in either order of their ids.
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
  one.pass_time_hearing({1, 2}, 2 * kLease);
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
        one.report(
            n, promise, running, 5,
            n <= 2 ? std::vector<Incarnation>{{3 - n, Nonce(3 - n)}} : std::vector<Incarnation>{});
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

// R11, the fence. Method: worker 3 announces its leave, and the plan without it is committed;
// nobody is seen in it. Then only the leaver reports.
struct Fenced3 {
  explicit Fenced3(Bugs bugs = {}, bool voted_for_it = false) : one(bugs) {
    one.begin(5);
    first = one.group.plan()->id;
    one.leave(3, 60000);
    REQUIRE(one.group.plan()->kind == PlanKind::kPrepared);
    REQUIRE(members_of(*one.group.plan()) == "12");
    second = one.group.plan()->id;
    one.pass_time_hearing({3}, 2 * kLease);
    one.report(3, one.asked(), first, 6, {}, voted_for_it ? second : EpochId{});
    one.pass_time_hearing({3}, 2 * kLease);
  }
  OneLeader one;
  EpochId first, second;
};

TEST_CASE("leader: R11, a leaver alone does not fence the epoch that goes on without it") {
  Fenced3 waits({}, /*voted_for_it=*/true);
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
  SUBCASE("without the fence, or its own vote, it goes on with the leaver") {
    for (const auto rule : {&Bugs::r11_no_fence, &Bugs::r11_leaver_voted}) {
      Fenced3 formed(broken(rule), /*voted_for_it=*/true);
      REQUIRE(formed.one.proposed() != nullptr);
      CHECK(members_of(*formed.one.proposed()) == "3");
    }
  }
}

TEST_CASE("leader: R11, a leaver that did not vote for the change goes on without the others") {
  Fenced3 left({}, /*voted_for_it=*/false);
  SUBCASE("who are silent") {
    REQUIRE(left.one.proposed() != nullptr);
    CHECK(members_of(*left.one.proposed()) == "3");
    CHECK(left.one.proposed()->base == 6);
  }
  SUBCASE("who are certainly dead") {
    for (std::uint64_t nonce : {1, 2}) left.one.die(nonce);
    REQUIRE(left.one.group.plan()->id > left.second);
    CHECK(members_of(*left.one.group.plan()) == "3");
  }
}

// The leaver voted for the change, so those who are dead may have committed steps without it.
std::string end_with_a_leaver_of_old_state(const Bugs& bugs) {
  Fenced3 left(bugs, /*voted_for_it=*/true);
  for (std::uint64_t nonce : {1, 2}) left.one.die(nonce);
  const auto& end = left.one.group.end();
  return end ? std::to_string(end->exit_code) + " " + end->reason
             : members_of(*left.one.group.plan());
}

TEST_CASE("leader: R11, steps that died with their epoch are not done again from older state") {
  const std::string end = end_with_a_leaver_of_old_state({});
  CHECK(end.substr(0, 14) == "4 state lost: ");
  CHECK(end.find("held by 1, 2") != std::string::npos);
  CHECK(end_with_a_leaver_of_old_state(broken(&Bugs::r11_revive_leaver)) == "3");
}

// Method: no member of the start has its first state yet when worker 3 leaves, and the others die.
TEST_CASE("leader: R11, a leaver that never had its first state begins it anew") {
  OneLeader one;
  one.begin(kNoVersion);
  const EpochId first = one.group.plan()->id;
  one.leave(3, 60000);
  REQUIRE(members_of(*one.group.plan()) == "12");
  one.pass_time_hearing({3}, 2 * kLease);
  SUBCASE("nobody passed a vote without its state") {
    one.report(3, one.asked(), first, kNoVersion);
    for (std::uint64_t nonce : {1, 2}) one.die(nonce);
    REQUIRE_FALSE(one.group.end());
    CHECK(one.group.plan()->kind == PlanKind::kFresh);
    CHECK(members_of(*one.group.plan()) == "3");
  }
  SUBCASE("a joiner was in no epoch and is no witness") {
    one.join(4);
    one.report(4, one.asked(), {}, kNoVersion);
    for (std::uint64_t nonce : {1, 2, 3}) one.die(nonce);
    REQUIRE(one.group.end());
    CHECK(one.group.end()->exit_code == 4);
  }
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
  REQUIRE(members_of(plan) == "142");
  CHECK(plan.members[1].joiner);
  return std::any_of(plan.holders.begin(), plan.holders.end(), [](const auto& holders) {
    return std::count(holders.begin(), holders.end(), Rank{1}) != 0;
  });
}

TEST_CASE("leader: R13, a member without a current copy holds nothing yet") {
  CHECK_FALSE(joiner_holds({}));
  CHECK(joiner_holds(broken(&Bugs::r13_any_owner)));
}

}  // namespace
}  // namespace starling::elastic
