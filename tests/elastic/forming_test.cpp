// The next epoch, by itself: two workers 1 and 2 with nonces 1 and 2, two segments that both hold.
// The rules that it keeps (R10 to R13) are shown with a whole leader in leader_test.cpp.

#include "elastic/membership/forming.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/exit.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

using namespace forming_command;

LeaderConfig forming_config(std::vector<std::string> tensors, std::uint32_t replicas) {
  LeaderConfig c;
  c.replicas = replicas;
  c.micro_batches = 4;
  c.steps = 100;
  c.segments = static_cast<SegmentId>(tensors.size());
  c.tensors = std::move(tensors);
  c.wanted_workers = 2;
  c.elastic.lease_ms = c.report_deadline_ms = kLease;
  return c;
}

struct Two {
  // `tensors`: the name of each segment's.
  explicit Two(std::vector<std::string> tensors = {"a", "b"}, WorkerRole first = WorkerRole::kBoth,
               WorkerRole second = WorkerRole::kBoth, std::uint32_t replicas = 2)
      : job(forming_config(std::move(tensors), replicas)) {
    group.apply(JobStarted{});
    join(1, first);
    join(2, second);
  }
  void join(std::uint64_t n, WorkerRole role) {
    Joined joined;
    joined.join.who = {0, Nonce(n)};
    joined.join.name = std::to_string(n);
    joined.join.role = role;
    group.apply(joined);
    roster.joined({n, Nonce(n)});
  }
  void report(std::uint64_t n, EpochId promise, Version version = kNoVersion,
              EpochId entered = {}) {
    Report r;
    r.promise = promise;
    r.version = version;
    r.entered = entered;
    r.parameters_complete = version != kNoVersion;
    r.copies.assign(job.segments, version != kNoVersion);
    roster.heard({n, Nonce(n)});
    roster.reported({n, Nonce(n)}, r);
    forming.reported(r);
  }
  void at(std::uint64_t now_ms) { roster.look(now_ms); }
  // What came of a call, by kind.
  void take(FormingCommands commands) {
    asked.clear();
    for (FormingCommand& command : commands) {
      if (auto* ask = std::get_if<Ask>(&command)) {
        asked += std::to_string(ask->who.nonce);
        id = ask->asked;
      }
      if (auto* p = std::get_if<ProposePlan>(&command)) plan = std::move(p->plan);
      if (auto* e = std::get_if<End>(&command)) end = *e;
      if (auto* w = std::get_if<Warn>(&command)) warnings.push_back(w->text);
    }
    forming.check_invariants();
  }
  void review() { take(forming.review()); }
  // The proposed plan is committed.
  std::optional<Forming::Cost> commit() {
    REQUIRE(plan.has_value());
    REQUIRE(group.apply(*plan));
    const auto cost = forming.committed(*plan);
    roster.follow(*plan);
    return cost;
  }
  void begin(Version version) {
    review();
    for (const std::uint64_t n : {1, 2}) report(n, id);
    review();
    commit();
    for (const std::uint64_t n : {1, 2}) {
      roster.entered({n, Nonce(n)}, plan->id);
      roster.reached({n, Nonce(n)}, version);
    }
    plan.reset();
  }

  const LeaderConfig job;
  Group group;
  Roster roster{job, group, 1};
  Forming forming{job, group, roster, /*term=*/3};
  std::string asked;  // nonces
  EpochId id;
  std::optional<Plan> plan;
  std::optional<End> end;
  std::vector<std::string> warnings;
};

TEST_CASE("forming: it asks all who may be members, and those again who have not reported") {
  Two two;
  two.review();
  CHECK(two.forming.active());
  CHECK(two.asked == "12");
  CHECK(two.id == EpochId{3, 1});  // R10: of its own term
  two.report(1, two.id);
  two.take(two.forming.ask_again());
  CHECK(two.asked == "2");
  two.review();
  CHECK_FALSE(two.plan.has_value());
}

TEST_CASE("forming: who promised more than was asked is asked again, above it") {
  Two two;
  two.review();
  two.report(1, {3, 7});
  two.review();
  CHECK(two.id == EpochId{3, 7});
  CHECK(two.asked == "2");
  two.report(2, two.id);
  two.review();
  REQUIRE(two.plan.has_value());
  CHECK(two.plan->id == EpochId{3, 7});
  CHECK(two.forming.fresh_id() == EpochId{3, 8});
}

TEST_CASE("forming: nothing is asked while nothing is wrong") {
  Two two;
  two.begin(5);
  two.review();
  CHECK_FALSE(two.forming.active());
  CHECK(two.asked.empty());
}

TEST_CASE("forming: what a plan has cost counts from the first notice") {
  Two two;
  two.begin(5);
  const EpochId first = two.group.plan()->id;
  two.at(100);
  two.report(1, {3, 2}, 5, first);
  two.at(130);
  two.forming.notice(130);  // not the first
  two.review();
  two.report(1, two.id, 5, first);
  two.report(2, two.id, 5, first);
  two.at(180);
  two.review();
  const auto cost = two.commit();
  REQUIRE(cost.has_value());
  CHECK(cost->detect_ms == 30);
  CHECK(cost->form_ms == 50);
  CHECK_FALSE(two.forming.active());
}

TEST_CASE("forming: a plan that is not the answer leaves the question open") {
  Two two;
  two.review();
  Plan other;
  other.id = {2, 9};
  CHECK_FALSE(two.forming.committed(other).has_value());
  CHECK(two.forming.active());
}

TEST_CASE("forming: who holds up all others is left out if the others have what it has") {
  Two two;
  two.begin(5);
  const EpochId first = two.group.plan()->id;
  two.at(5000);
  two.take(two.forming.leave_out({{2, 2}}, 1000, "2 got nowhere", /*at_any_price=*/false));
  CHECK(two.asked == "12");
  two.report(1, two.id, 5, first);
  two.review();
  REQUIRE(two.plan.has_value());
  REQUIRE(two.plan->members.size() == 1);
  CHECK(two.plan->members[0].who.nonce == 1);
  CHECK(two.plan->cause == "2 got nowhere");
}

// A tensor of several segments counts once, so that the line stays one whatever the model.
TEST_CASE("forming: of the tensors that are lost the first is named and the others are counted") {
  const struct {
    std::vector<std::string> tensors;
    const char* expected;
  } cases[] = {
      {{"a", "a"}, "state lost: no living worker has a current copy of a (held by 1, 2); there"},
      {{"a", "b"}, "a current copy of a (held by 1, 2) and of 1 more; there is no checkpoint"},
      {{"a", "a", "b", "c", "c", "d"},
       " of a (held by 1, 2) and of 3 more; there is no checkpoint"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.expected);
    Two two(c.tensors);
    two.begin(5);
    for (const std::uint64_t n : {1, 2}) two.roster.died(Death{{n, Nonce(n)}});
    two.review();
    REQUIRE(two.end.has_value());
    CAPTURE(two.end->reason);
    CHECK(two.end->code == 4);
    CHECK(two.end->reason.find(c.expected) != std::string::npos);
  }
}

// Method: 1 stops since its connection broke, and neither 2 nor its guard is heard any more.
TEST_CASE("forming: the cause of a plan is a member that was lost, not one that stopped for it") {
  Two two;
  two.begin(5);
  const EpochId first = two.group.plan()->id;
  two.at(100);
  two.report(1, {3, 2}, 5, first);
  two.review();
  two.report(1, two.id, 5, first);
  for (std::uint64_t now = 150; now < 20 * kLease && !two.plan; now += 50) {
    two.at(now);
    two.roster.heard({1, 1});
    two.review();
  }
  REQUIRE(two.plan.has_value());
  CHECK(two.plan->members.size() == 1);
  CHECK(two.plan->cause == "2 not heard for 1000 ms");
}

// Goal: where spot machines compute and a stable one holds, no loss of spot machines costs state; the run waits for others.
TEST_CASE("forming: where nobody is left who computes, holders wait for a joiner, however long") {
  Two two({"a", "b"}, WorkerRole::kHold, WorkerRole::kCompute);
  two.begin(5);
  CHECK(two.group.plan()->holders == std::vector<std::vector<Rank>>{{0}, {0}});
  CHECK(two.group.plan()->shares == std::vector<Rank>(4, 1));
  two.roster.died(Death{{2, 2}});
  two.review();
  for (int i = 0; i < 200; ++i) {
    two.at(two.roster.now_ms() + kLease / 2);
    two.report(1, two.id, 5, kFirst);
    two.review();
    CHECK_FALSE(two.plan.has_value());
    CHECK_FALSE(two.end.has_value());
  }
  CHECK(two.warnings ==
        std::vector<std::string>{"none of 1 workers computes: the run waits for one that does "
                                 "(worker --role)"});
  two.join(3, WorkerRole::kCompute);
  two.review();
  two.take(two.forming.ask_again());
  two.report(3, two.id);
  two.review();
  REQUIRE(two.plan.has_value());
  CHECK(two.plan->base == 5);
  CHECK(two.plan->members.size() == 2);
  for (const auto& ranks : two.plan->holders)
    CHECK(two.plan->members[ranks.front()].who.nonce == 1);
  for (const Rank r : two.plan->shares) CHECK(two.plan->members[r].who.nonce == 3);
}

TEST_CASE("forming: where state is gone, nobody is waited for who computes") {
  Two two({"a", "b"}, WorkerRole::kHold, WorkerRole::kBoth, /*replicas=*/0);
  two.begin(5);
  REQUIRE(two.group.plan()->holders == std::vector<std::vector<Rank>>{{0}, {1}});
  two.roster.died(Death{{2, 2}});
  two.review();
  Report r;
  r.promise = two.id;
  r.version = 5;
  r.entered = kFirst;
  r.copies = {true, false};
  two.roster.heard({1, Nonce(1)});
  two.roster.reported({1, Nonce(1)}, r);
  two.review();
  REQUIRE(two.end.has_value());
  CHECK(two.end->reason.starts_with("state lost: no living worker has a current copy of b"));
}

TEST_CASE("forming: state that none of the living can hold is lost, and not waited for") {
  Two two({"a", "b"}, WorkerRole::kHold, WorkerRole::kCompute);
  two.begin(5);
  two.roster.died(Death{{1, 1}});
  two.review();
  two.report(2, two.id, 5, kFirst);
  two.at(2 + two.job.elastic.state_timeout_ms);
  two.report(2, two.id, 5, kFirst);
  two.review();
  REQUIRE(two.end.has_value());
  CHECK(two.end->reason.starts_with("state lost: no living worker has a current copy"));
}

TEST_CASE("forming: a start at which nobody holds, or nobody computes, ends the job") {
  for (const WorkerRole role : {WorkerRole::kHold, WorkerRole::kCompute}) {
    Two two({"a", "b"}, role, role);
    two.review();
    for (const std::uint64_t n : {1, 2}) two.report(n, two.id);
    two.review();
    CHECK_FALSE(two.plan.has_value());
    CHECK_FALSE(two.end.has_value());
    two.at(2 + two.job.elastic.start_timeout_ms);
    for (const std::uint64_t n : {1, 2}) two.report(n, two.id);
    two.review();
    REQUIRE(two.end.has_value());
    CHECK(two.end->code == kExitAlone);
    CHECK(two.end->reason == std::string("none of 2 workers ") +
                                 (role == WorkerRole::kHold ? "computes" : "holds state") +
                                 ", as --role tells them, and no other came within 30000 ms, "
                                 "[elastic].start_timeout_ms");
  }
}

TEST_CASE("forming: a start that too few come to ends the job") {
  Two two;
  two.roster.died(Death{{2, 2}});
  two.at(2 + two.job.elastic.start_timeout_ms);
  two.review();
  two.report(1, two.id);
  two.review();
  REQUIRE(two.end.has_value());
  CHECK(two.end->reason == "1 of 2 workers came within 30000 ms, [elastic].start_timeout_ms");
}

}  // namespace
}  // namespace starling::elastic
