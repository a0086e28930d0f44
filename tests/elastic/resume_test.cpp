// The resume rule R12 as a table of reports, and what follows from it: whose copies count (R13),
// who computes what (R8).

#include "elastic/membership/resume.h"

#include <doctest/doctest.h>

#include <string>

#include "elastic/protocol/plan.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

constexpr EpochId kFourth{1, 4};

// Workers 1, 2, 3 are members of the first epoch, 1 and 2 of the second, whose base is 6.
Group group_of_one_epoch() {
  Group group;
  Plan plan;
  plan.id = kFirst;
  for (std::uint64_t nonce : {1, 2, 3}) plan.members.emplace_back().who = {nonce, Nonce(nonce)};
  CHECK(group.apply(plan));
  return group;
}

Group group_of_two_epochs() {
  Group group = group_of_one_epoch();
  Plan plan = *group.plan();
  plan.members.pop_back();
  plan.kind = PlanKind::kForced;
  plan.predecessor = kFirst;
  plan.id = kFourth;
  plan.base = 6;
  CHECK(group.apply(plan));
  return group;
}

struct Said {
  EpochId entered;
  Version version;
  bool pending = false, complete = true;
  std::uint64_t who = 0;  // 0: its place in the list, from 1
};

std::vector<Reporter> reporters_of(const std::vector<Said>& said) {
  std::vector<Reporter> reporters;
  for (const Said& s : said) {
    Reporter r;
    const std::uint64_t who = s.who ? s.who : reporters.size() + 1;
    r.who = {who, Nonce(who)};
    r.report.entered = s.entered;
    r.report.version = s.version;
    r.report.pending = s.pending;
    r.report.parameters_complete = s.complete;
    r.report.copies = {true};
    reporters.push_back(std::move(r));
  }
  return reporters;
}

struct ResumeCase {
  const char* name;
  bool two_epochs;
  std::vector<Said> said;  // by workers 1, 2, ..
  Version base;
  BeginAt begin;
};

const Said kAt5{kFirst, 5}, kPendingFor5{kFirst, 5, true}, kAt6{kFirst, 6};
const Said kNoState{{}, kNoVersion}, kJoiner{{}, kNoVersion, false, false, /*who=*/9};

const ResumeCase kTable[] = {
    {"nobody has voted", false, {kAt5, kAt5, kAt5}, 5, BeginAt::kCompute},
    {"one has not voted, so nobody passed", false, {kPendingFor5, kAt5}, 5, BeginAt::kCompute},
    {"all have voted", false, {kPendingFor5, kPendingFor5, kPendingFor5}, 6, BeginAt::kVote},
    {"all that are left have voted: the lost one may have passed",
     false,
     {kPendingFor5, kPendingFor5},
     6,
     BeginAt::kVote},
    {"one has passed, the others can", false, {kAt6, kPendingFor5}, 6, BeginAt::kVote},
    {"all have passed", false, {kAt6, kAt6}, 6, BeginAt::kCompute},
    {"one lacks parameters", false, {kAt6, {kFirst, 6, false, false}}, 6, BeginAt::kGather},
    {"one has no state yet", false, {kAt5, kAt5, kJoiner}, 5, BeginAt::kGather},
    {"a joiner votes with those who had voted",
     false,
     {kPendingFor5, kPendingFor5, kJoiner},
     6,
     BeginAt::kVote},
    {"one never came into the last epoch", true, {{kFourth, 6}, kPendingFor5}, 6, BeginAt::kVote},
    {"and cannot have voted in it", true, {{kFourth, 6, true}, kPendingFor5}, 6, BeginAt::kVote},
    {"nobody came into the last epoch, whose base counts",
     true,
     {kPendingFor5, kPendingFor5},
     6,
     BeginAt::kVote},
};

// Names of the rows that come out otherwise.
std::string wrong_rows(const Bugs& bugs) {
  std::string names;
  for (const ResumeCase& c : kTable) {
    const Group group = c.two_epochs ? group_of_two_epochs() : group_of_one_epoch();
    const auto resume = resume_rule(reporters_of(c.said), group, bugs);
    const bool right = resume && resume.value().base == c.base && resume.value().begin == c.begin &&
                       !resume.value().fresh;
    if (!right) names += std::string(c.name) + "; ";
  }
  return names;
}

TEST_CASE("resume: R12, a step that a lost worker may have passed is finished, no other") {
  CHECK(wrong_rows({}) == "");
  Bugs never, always;
  never.r12_never_finish = true;
  always.r12_always_finish = true;
  CHECK(wrong_rows(never) != "");
  CHECK(wrong_rows(always) != "");
}

TEST_CASE("resume: R12, reports that contradict each other are a bug, not a base") {
  const auto two_versions = resume_rule(reporters_of({kAt6, kAt5}), group_of_one_epoch(), {});
  REQUIRE_FALSE(two_versions.has_value());
  CHECK(two_versions.error().code() == Code::kInternal);
  const auto far_apart =
      resume_rule(reporters_of({{kFirst, 7}, kPendingFor5}), group_of_one_epoch(), {});
  REQUIRE_FALSE(far_apart.has_value());
}

TEST_CASE("resume: without a state, a start that nobody can have left begins again") {
  const auto again = resume_rule(reporters_of({kNoState, kNoState}), group_of_one_epoch(), {});
  REQUIRE(again.has_value());
  CHECK(again.value().fresh);
  const auto lost = resume_rule(reporters_of({kNoState}), group_of_two_epochs(), {});
  REQUIRE_FALSE(lost.has_value());
  CHECK(lost.error().code() == Code::kStateLost);
}

// Worker 1 has voted for step 0 and never heard of the fresh plan that was made since 3 had not;
// 3 is dead. In that plan 2 has no state yet, so nobody can have passed step 0 there either.
TEST_CASE(
    "resume: R12, who has entered a fresh plan and has no state yet shows that nobody left it") {
  Group group = group_of_one_epoch();
  Plan again = *group.plan();
  again.kind = PlanKind::kFresh;
  again.predecessor = kFirst;
  again.id = kFourth;
  again.entered = {kFirst};
  CHECK(group.apply(again));
  const Said voted{kFirst, 0, true};
  const auto resume = resume_rule(reporters_of({voted, {kFourth, kNoVersion}}), group, {});
  REQUIRE(resume.has_value());
  CHECK(resume.value().base == 0);
  CHECK(resume.value().fresh);
  const auto joined = resume_rule(reporters_of({voted, kJoiner}), group, {});
  REQUIRE(joined.has_value());
  CHECK(joined.value().base == 1);
}

// Goal: what nobody can have run moves nothing. Method: a report that names an epoch of which its
// sender was no member, beside one that has voted and one that has not, and alone.
TEST_CASE("resume: R12, an epoch of which no reporter was a member decides nothing") {
  const Group group = group_of_two_epochs();
  const EpochId later{1, 9};
  Said ghost{later, 6};
  ghost.who = 1;
  const auto alone = resume_rule(reporters_of({ghost}), group, {});
  REQUIRE(alone.has_value());
  CHECK(alone.value().base == 6);  // not 7: nobody has voted for step 6
  Said left_behind{kFourth, 6};    // worker 3 is no member of the second
  left_behind.who = 3;
  const auto other = resume_rule(reporters_of({left_behind}), group, {});
  REQUIRE(other.has_value());
  CHECK(other.value().base == 6);
  Said voted{kFourth, 6, true};
  const auto both = resume_rule(reporters_of({voted, {kFourth, 6, true}, left_behind}), group, {});
  REQUIRE(both.has_value());
  CHECK(both.value().base == 7);  // of the members of the second all have
}

// R13: label base, or base-1 with its total pending.
TEST_CASE("resume: R13, a copy counts at base, or one before with its total") {
  const auto counts = [](Said said, Version base) {
    return current_copy(reporters_of({said})[0].report, 0, base);
  };
  CHECK(counts(kAt6, 6));
  CHECK(counts(kPendingFor5, 6));
  CHECK(counts(kPendingFor5, 5));
  CHECK_FALSE(counts(kAt5, 6));
  CHECK_FALSE(counts(kAt6, 5));
  CHECK_FALSE(counts(kJoiner, 6));
  CHECK_FALSE(current_copy(reporters_of({kAt6})[0].report, /*segment=*/1, 6));
}

std::vector<Reporter> with_shares() {
  auto reporters = reporters_of({kAt5, kAt5, kPendingFor5, kJoiner});
  reporters[0].report.share = {0, 1, 2};
  reporters[0].report.done = {0, 1};
  reporters[1].report.share = {3};
  reporters[2].report.version = 4;  // its work was for the step before
  reporters[2].report.share = {4, 5};
  return reporters;
}

TEST_CASE("resume: R8, who is at base keeps its share, the rest goes to who has least left") {
  const auto shares = deal_shares(with_shares(), std::vector<Member>(with_shares().size()),
                                  /*base=*/5, /*micro_batches=*/8, {});
  REQUIRE(shares.has_value());
  CHECK(shares.value() == std::vector<Rank>{0, 0, 0, 1, 2, 3, 0, 1});
}

TEST_CASE("resume: what is dealt again goes to who can do it first") {
  auto reporters = with_shares();
  for (auto& r : reporters) r.report.micro_batch_ns = 20;
  reporters[1].report.micro_batch_ns = 5;
  reporters[3].report.micro_batch_ns = 0;  // a joiner, to be measured
  const auto shares = deal_shares(reporters, std::vector<Member>(reporters.size()), 5, 8, {});
  REQUIRE(shares.has_value());
  // Worker 2 has one to do and does three more in the 20 ns that the third needs for one.
  CHECK(shares.value() == std::vector<Rank>{0, 0, 0, 1, 3, 1, 1, 1});
}

TEST_CASE("resume: nothing is dealt to who holds alone") {
  auto reporters = with_shares();
  reporters[1].report.share.clear();
  std::vector<Member> members(reporters.size());
  members[1].role = members[3].role = WorkerRole::kHold;
  const auto shares = deal_shares(reporters, members, 5, 8, {});
  REQUIRE(shares.has_value());
  CHECK(shares.value() == std::vector<Rank>{0, 0, 0, 2, 0, 2, 0, 2});
}

TEST_CASE("resume: shares that overlap are a bug") {
  auto reporters = with_shares();
  reporters[1].report.share = {2, 3};
  const auto shares = deal_shares(reporters, std::vector<Member>(reporters.size()), 5, 8, {});
  REQUIRE_FALSE(shares.has_value());
  CHECK(shares.error().code() == Code::kInternal);
}

}  // namespace
}  // namespace starling::elastic
