// What an admin asks of a run, as schedules of events: docs/steer.md.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/limits.h"
#include "elastic/protocol/checkpoint_turn.h"
#include "tests/elastic/one_leader.h"

namespace starling::elastic {
namespace {

// Workers 1, 2, 3 who hold everything, of a job with checkpoints if `every` is not 0.
struct Steered : OneLeader {
  explicit Steered(std::uint64_t every = 0, std::map<std::uint64_t, std::string> named = {},
                   std::map<std::uint64_t, WorkerRole> of = {})
      : checkpoint_every(every) {
    names = std::move(named);
    roles = std::move(of);
    start(1);
    begin(21);
  }
  void elect_again() { start(2); }
  void start(std::uint64_t term) {
    LeaderConfig config;
    config.micro_batches = 6;
    config.steps = 100;
    config.segments = kSegments;
    config.wanted_workers = 3;
    config.elastic.lease_ms = config.report_deadline_ms = kLease;
    config.checkpoint.every = checkpoint_every;
    config.checkpoint.dir = "/shared";
    config.elastic.digest_every = 0;
    lead(config, term);
  }
  void take(const LeaderCommand& command) override {
    const auto* store = std::get_if<leader_command::Store>(&command);
    if (store) stored = store->checkpoint.version;
    if (const auto* event = std::get_if<Event>(&command))
      if (const auto* acted = std::get_if<event::AdminActed>(event)) told.push_back(*acted);
  }
  AdminAnswered ask_rate(double peak_rate, std::uint64_t mark = 0) {
    return ask(AdminAction::kRate, {}, mark, peak_rate);
  }
  // All answer the freeze of an ask at this version, and the plan is committed.
  void form_at(Version version) {
    for (std::uint64_t nonce : {1, 2, 3}) report(nonce, frozen, group.plan()->id, version);
    commit();
  }
  AdminAnswered ask(AdminAction action, const std::string& worker = {}, std::uint64_t mark = 0,
                    double peak_rate = 0) {
    sent.clear();
    on(leader_event::AdminArrived{{0, Nonce(99)}, "admin", {action, worker, mark, peak_rate}});
    frozen = std::max(frozen, asked());
    for (const auto& send : sent)
      if (const auto* answer = std::get_if<AdminAnswered>(&send.body)) {
        CHECK(send.to.nonce == Nonce(99));
        CHECK(answer->action == action);
        return *answer;
      }
    FAIL("the leader has answered nothing");
    return {};
  }
  // The epoch of the last plan runs, and all its members are seen in it at this version.
  void enter(Version version) {
    for (const Member& m : group.plan()->members)
      say(m.who.nonce, Heartbeat{group.plan()->id, version, {}});
  }
  // From a shard to the committed entry.
  void publish(Version version) {
    ShardWritten part{version, {}, {"shard", 10, {}}, {}};
    part.record.version = version - 1;
    for (SegmentId s = 0; s < kSegments; ++s) part.shard.segments.push_back({s, {1, 0}});
    say(1, part);
    REQUIRE(stored == version);
    on(leader_event::Stored{version, ""});
    commit();
  }
  std::uint64_t checkpoint_every;
  Version stored = 0;
  EpochId frozen;
  std::vector<event::AdminActed> told;
};

// Goal: a worker is drained as one that has announced its leave, by a prepared plan.
TEST_CASE("admin: a drained worker leaves without a forced epoch") {
  Steered one;
  const auto first = one.ask(AdminAction::kDrain, "2");
  CHECK(first.state == AdminState::kUnderWay);
  CHECK(first.mark == 2);
  one.ask(AdminAction::kDrain, "2", first.mark);  // again, before the first is committed
  CHECK(std::ranges::count_if(one.proposals, [](const Entry& e) {
          return std::holds_alternative<LeaveAnnounced>(e);
        }) == 1);
  one.commit();
  one.pass_time(kLease / 2);
  one.commit();
  REQUIRE(members_of(*one.group.plan()) == "13");
  CHECK(one.group.plan()->kind == PlanKind::kPrepared);
  CHECK(one.ask(AdminAction::kDrain, "2", first.mark).state == AdminState::kUnderWay);
  one.enter(23);
  const auto last = one.ask(AdminAction::kDrain, "2", first.mark);
  CHECK(last.state == AdminState::kDone);
  CHECK(last.text == "2 has left");
  CHECK(one.told == std::vector<event::AdminActed>{{"admin", "drain", "2"}});
  // It is released, and its guard starts no new life.
  one.sent.clear();
  one.say(2, Heartbeat{{}, 23, {}});
  CHECK(std::ranges::any_of(one.sent, [](const leader_command::Send& send) {
    return send.to.nonce == Nonce(2) && std::holds_alternative<Released>(send.body);
  }));
}

TEST_CASE("admin: who alone computes, or alone holds state, is not drained") {
  Steered computes(0, {},
                   {{1, WorkerRole::kHold}, {2, WorkerRole::kCompute}, {3, WorkerRole::kHold}});
  const auto first = computes.ask(AdminAction::kDrain, "2");
  CHECK(first.state == AdminState::kRefused);
  CHECK(first.text == "no worker would stay to compute; let another join first, or stop the run");
  CHECK(computes.ask(AdminAction::kDrain, "1").state == AdminState::kUnderWay);
  Steered waiting(0, {},
                  {{1, WorkerRole::kHold}, {2, WorkerRole::kCompute}, {3, WorkerRole::kHold}});
  waiting.die(2);
  CHECK(waiting.ask(AdminAction::kDrain, "3").text ==
        "no worker computes, so no step hands over what 3 holds; let another join first, or stop "
        "the run");
  Steered holds(0, {},
                {{1, WorkerRole::kHold}, {2, WorkerRole::kCompute}, {3, WorkerRole::kCompute}});
  const auto second = holds.ask(AdminAction::kDrain, "1");
  CHECK(second.state == AdminState::kRefused);
  CHECK(second.text.starts_with("no worker would stay to take over what 1 holds"));
}

// Goal: whom the group waits for is out without its help.
TEST_CASE("admin: an evicted worker is out by a forced epoch, silent or not") {
  for (const bool silent : {true, false}) {
    CAPTURE(silent);
    Steered one;
    const EpochId epoch = one.group.plan()->id;
    CHECK(one.ask(AdminAction::kEvict, "2").state == AdminState::kUnderWay);
    one.commit();
    const EpochId asked = one.asked();
    // Changes nothing while the others are asked.
    CHECK(one.ask(AdminAction::kEvict, "2", 2).state == AdminState::kUnderWay);
    for (std::uint64_t nonce : {1, 2, 3})
      if (nonce != 2 || !silent) one.report(nonce, asked, epoch, 21);
    one.commit();
    REQUIRE(members_of(*one.group.plan()) == "13");
    CHECK(one.group.plan()->kind == PlanKind::kForced);
    CHECK(one.group.plan()->cause == "2 evicted by admin");
    const auto last = one.ask(AdminAction::kEvict, "2", 2);
    CHECK(last.state == AdminState::kDone);
    CHECK(last.text == "2 is out");
    CHECK(one.told == std::vector<event::AdminActed>{{"admin", "evict", "2"}});
  }
}

TEST_CASE("admin: a worker that was drained too slowly is evicted") {
  Steered one;
  one.ask(AdminAction::kDrain, "2");
  one.commit();
  const EpochId epoch = one.group.plan()->id;
  one.ask(AdminAction::kEvict, "2");
  const EpochId asked = one.asked();
  for (std::uint64_t nonce : {1, 3}) one.report(nonce, asked, epoch, 21);
  one.commit();
  CHECK(members_of(*one.group.plan()) == "13");
  CHECK(one.told ==
        std::vector<event::AdminActed>{{"admin", "drain", "2"}, {"admin", "evict", "2"}});
}

TEST_CASE("admin: what would lose state, or is of nobody, is refused and changes nothing") {
  Steered one;
  const auto nobody = one.ask(AdminAction::kDrain, "7");
  CHECK(nobody.state == AdminState::kRefused);
  CHECK(nobody.text == "no worker named \"7\" is in the epoch that runs; its members are 1, 2, 3");
  Steered joined_late(0, {{1, "z"}});
  CHECK(joined_late.ask(AdminAction::kDrain, "7").text ==
        "no worker named \"7\" is in the epoch that runs; its members are 2, 3, z");
  for (const char* name : {"1", "2"}) one.ask(AdminAction::kDrain, name);
  one.commit();
  one.told.clear();
  for (const AdminAction action : {AdminAction::kDrain, AdminAction::kEvict}) {
    const auto last = one.ask(action, "3");
    CHECK(last.state == AdminState::kRefused);
    CHECK(last.text.starts_with("no worker would stay to take over what 3 holds"));
  }
  CHECK(one.told.empty());
  CHECK(one.proposals.empty());
}

// Goal: asks at once leave somebody who stays. Method: none is committed before the last is asked.
TEST_CASE("admin: of all workers that are drained at once one stays") {
  Steered one;
  CHECK(one.ask(AdminAction::kDrain, "1").state == AdminState::kUnderWay);
  CHECK(one.ask(AdminAction::kEvict, "2").state == AdminState::kUnderWay);
  CHECK(one.ask(AdminAction::kDrain, "3").text.starts_with("no worker would stay"));
}

// Goal: what an admin has begun goes on without the admin, also where several hang.
TEST_CASE("admin: workers that hang are evicted together, though nobody asks again") {
  Steered one;
  const EpochId epoch = one.group.plan()->id;
  one.ask(AdminAction::kEvict, "2");
  one.ask(AdminAction::kEvict, "3");
  one.sent.clear();
  one.commit();
  one.report(1, one.asked(), epoch, 21);
  one.commit();
  REQUIRE(one.group.plan()->kind == PlanKind::kForced);
  CHECK(members_of(*one.group.plan()) == "1");
  CHECK(one.told.size() == 2);
}

TEST_CASE(
    "admin: an eviction that would lose state has ended as a drain, and forces no epoch again") {
  Steered one;
  const EpochId epoch = one.group.plan()->id;
  one.ask(AdminAction::kEvict, "2");
  one.commit();
  one.pass_time(10);
  const EpochId asked = one.asked();
  for (std::uint64_t nonce : {1, 3}) {  // both have lost what they held
    Report report;
    report.promise = asked;
    report.entered = epoch;
    report.version = 21;
    report.parameters_complete = true;
    report.copies.assign(kSegments, false);
    one.say(nonce, report);
  }
  one.report(2, asked, epoch, 21);
  one.commit();
  REQUIRE(members_of(*one.group.plan()).find('2') != std::string::npos);
  CHECK(one.ask(AdminAction::kEvict, "2", 2).state == AdminState::kUnderWay);
}

TEST_CASE("admin: a mark of one worker says nothing of another") {
  Steered one;
  CHECK(one.ask(AdminAction::kDrain, "2", 3).state ==
        AdminState::kDone);  // as of a life that is gone
  CHECK(one.proposals.empty());
}

TEST_CASE("admin: a checkpoint that cannot be written is said, and tried no more") {
  Steered one(/*every=*/1000);
  Progress progress{one.group.plan()->id, {}, 3, {}, 1};
  progress.record.version = 24;
  one.say(1, progress);
  const auto first = one.ask(AdminAction::kCheckpoint);
  one.say(1, ShardWritten{26, {}, {}, CheckpointTurn::kStillWriting});
  CHECK(one.ask(AdminAction::kCheckpoint, {}, first.mark).state == AdminState::kUnderWay);
  one.say(1, ShardWritten{27, {}, {}, "no space left"});
  const auto last = one.ask(AdminAction::kCheckpoint, {}, first.mark);
  CHECK(last.state == AdminState::kRefused);
  CHECK(last.text == "the checkpoint of step 27 is given up: 1: no space left");
  one.sent.clear();
  one.pass_time(1000);
  CHECK(std::ranges::none_of(one.sent, [](const leader_command::Send& send) {
    return std::holds_alternative<CheckpointAsked>(send.body);
  }));
}

// Goal: a leader that comes later goes on with what the one before has begun.
TEST_CASE("admin: asks of an earlier leader are answered by the next") {
  Steered one;
  one.ask(AdminAction::kDrain, "2");
  one.commit();
  one.elect(2);
  CHECK(one.ask(AdminAction::kDrain, "2", 2).state == AdminState::kUnderWay);
  CHECK(one.proposals.empty());
  one.die(2);
  const auto last = one.ask(AdminAction::kDrain, "2", 2);
  CHECK(last.state == AdminState::kRefused);
  CHECK(last.text == "2 died before it had left; a new life of it may join");
}

TEST_CASE("admin: a checkpoint is one of a version from then on") {
  Steered without;
  CHECK(without.ask(AdminAction::kCheckpoint).state == AdminState::kRefused);

  Steered one(/*every=*/1000);
  Progress progress{one.group.plan()->id, {}, 3, {}, 1};
  progress.record.version = 24;
  one.say(1, progress);
  const auto first = one.ask(AdminAction::kCheckpoint);
  CHECK(first.state == AdminState::kUnderWay);
  CHECK(first.mark == 25);
  CHECK(std::ranges::count_if(one.sent, [](const leader_command::Send& send) {
          return std::holds_alternative<CheckpointAsked>(send.body);
        }) == 3);
  CHECK(one.ask(AdminAction::kCheckpoint, {}, first.mark).state == AdminState::kUnderWay);
  one.publish(22);  // its parts were on their way: too old
  const auto again = one.ask(AdminAction::kCheckpoint, {}, first.mark);
  CHECK(again.state == AdminState::kUnderWay);
  one.publish(26);
  const auto last = one.ask(AdminAction::kCheckpoint, {}, first.mark);
  CHECK(last.state == AdminState::kDone);
  CHECK(last.text == "the checkpoint of step 26 is complete");
  CHECK(one.told == std::vector<event::AdminActed>{{"admin", "checkpoint", ""}});
}

// Goal: no checkpoint of before is taken for the one that was asked for.
TEST_CASE("admin: a leader that knows no step yet answers when it does") {
  Steered one(/*every=*/1000);
  one.on(leader_event::AskCheckpoint{});
  one.publish(22);
  one.elect_again();
  const auto first = one.ask(AdminAction::kCheckpoint);
  CHECK(first.state == AdminState::kUnderWay);
  CHECK(first.mark == 0);
  CHECK(one.told.empty());
  one.say(1, Heartbeat{one.group.plan()->id, 40, {}});
  const auto second = one.ask(AdminAction::kCheckpoint);
  CHECK(second.state == AdminState::kUnderWay);
  CHECK(second.mark == 40);
  one.ask(AdminAction::kCheckpoint);  // sent before the answer came
  CHECK(one.told.size() == 1);
}

// Goal: all steps below a plan's base have the old rate wherever they were done, all from there on the new one.
TEST_CASE("admin: another rate begins at the base of a forced epoch of the same members (R19)") {
  Steered one;
  const auto first = one.ask_rate(5e-4);
  CHECK(first.state == AdminState::kUnderWay);
  CHECK(first.mark == 1);
  REQUIRE(one.plans_sent() == 0);
  const EpochId before = one.group.plan()->id;
  CHECK(one.ask_rate(5e-4).mark == 1);  // sent before the answer came
  one.form_at(30);
  const Plan& plan = *one.group.plan();
  REQUIRE(plan.predecessor == before);
  CHECK(plan.kind == PlanKind::kForced);
  CHECK(members_of(plan) == "123");
  CHECK(plan.rates == std::vector<RateChange>{{plan.base, 5e-4}});
  CHECK(plan.cause == "admin changes the rate; peak rate 5e-04 after step 30");
  const auto last = one.ask_rate(5e-4, first.mark);
  CHECK(last.state == AdminState::kDone);
  CHECK(last.text == "the peak rate is 5e-04 after step 30");
  CHECK(one.ask_rate(5e-4).state == AdminState::kDone);  // the rate that there is
  CHECK(one.told == std::vector<event::AdminActed>{{"admin", "rate", "", 5e-4}});
  // Plans that follow keep it, prepared ones as well.
  one.enter(31);
  one.leave(2, 60'000);
  CHECK(one.group.plan()->kind == PlanKind::kPrepared);
  CHECK(one.group.plan()->rates == std::vector<RateChange>{{30, 5e-4}});
}

TEST_CASE("admin: who asked for a rate is answered of that one, whatever came after") {
  Steered one;
  const auto first = one.ask_rate(5e-4);
  const auto other = one.ask_rate(1e-4);  // waits for the first
  CHECK(other.state == AdminState::kUnderWay);
  CHECK(other.mark == 0);
  one.form_at(30);
  one.enter(30);
  const auto second = one.ask_rate(1e-4);
  CHECK(second.mark == 2);
  one.form_at(33);
  CHECK(one.ask_rate(5e-4, first.mark).text == "the peak rate is 5e-04 after step 30");
  CHECK(one.ask_rate(1e-4, second.mark).text == "the peak rate is 1e-04 after step 33");
  CHECK(one.told.size() == 2);
}

TEST_CASE("admin: a rate that an earlier leader was asked for is changed by the next") {
  Steered one;
  const auto first = one.ask_rate(5e-4);
  one.elect_again();
  CHECK(one.ask_rate(5e-4, first.mark).state == AdminState::kUnderWay);
  one.form_at(30);
  CHECK(one.ask_rate(5e-4, first.mark).state == AdminState::kDone);
  CHECK(one.group.rates() == std::vector<RateChange>{{30, 5e-4}});
}

// Goal: the freeze breaks the members' links, of which each report says so; nobody is left out for that.
TEST_CASE("admin: changes of the rate one after the other leave out nobody") {
  Steered one;
  for (const double rate : {5e-4, 4e-4, 3e-4, 2e-4}) {
    one.ask_rate(rate);
    const Version at(30 + one.group.rates().size());
    for (std::uint64_t nonce : {1, 2, 3})
      one.report(nonce, one.frozen, one.group.plan()->id, at,
                 nonce == 1 ? std::vector<Incarnation>{{2, Nonce(2)}} : std::vector<Incarnation>{});
    one.commit();
    CHECK(members_of(*one.group.plan()) == "123");
    one.enter(at);
  }
  CHECK(one.group.rates().size() == 4);
}

TEST_CASE("admin: who asked a leader that is gone asks again where another's change came first") {
  Steered one;
  const auto first = one.ask_rate(5e-4);
  one.elect_again();
  CHECK(one.ask_rate(1e-4).mark == first.mark);
  one.form_at(30);
  one.enter(30);
  const auto again = one.ask_rate(5e-4, first.mark);
  CHECK(again.state == AdminState::kUnderWay);
  CHECK(again.mark == first.mark + 1);
  one.form_at(33);
  CHECK(one.ask_rate(5e-4, again.mark).text == "the peak rate is 5e-04 after step 33");
}

// Goal: who stops a run right after the rate was changed goes on with that rate.
TEST_CASE(
    "admin: a checkpoint of before the last change of the rate is not the one that is asked for") {
  Steered one(/*every=*/1000);
  one.on(leader_event::AskCheckpoint{});
  one.publish(30);
  one.ask_rate(5e-4);
  one.form_at(30);
  one.enter(30);
  const auto first = one.ask(AdminAction::kCheckpoint);
  CHECK(first.state == AdminState::kUnderWay);
  CHECK(one.ask(AdminAction::kCheckpoint, {}, first.mark).state == AdminState::kUnderWay);
  one.publish(31);
  CHECK(one.group.checkpoints().back().rates == one.group.rates());
  CHECK(one.ask(AdminAction::kCheckpoint, {}, first.mark).text ==
        "the checkpoint of step 31 is complete");
}

// Goal: steps that were told with a rate are done again with it. Method: a restart from a checkpoint far below them.
TEST_CASE("admin: no rate changes for steps that are done again (R19)") {
  Steered one(/*every=*/20);
  Progress progress{one.group.plan()->id, {}, 3, {}, 1};
  progress.record.version = 49;
  one.say(1, progress);
  one.publish(40);
  for (std::uint64_t nonce : {1, 2, 3}) one.die(nonce);
  one.commit();
  REQUIRE(one.group.restart().has_value());
  CHECK(one.group.reached() == Version{51});
  for (std::uint64_t nonce : {4, 5, 6}) one.join(nonce);
  one.pass_time(10'000);
  const EpochId promise = one.asked();
  const auto first = one.ask_rate(5e-4);
  CHECK(first.state == AdminState::kUnderWay);
  for (std::uint64_t nonce : {4, 5, 6}) one.report(nonce, promise, {}, kNoVersion);
  one.commit();
  REQUIRE_FALSE(one.group.restart());
  CHECK(one.group.plan()->base == Version{40});
  CHECK(one.group.rates() == std::vector<RateChange>{{51, 5e-4}});
  CHECK(one.ask_rate(5e-4, first.mark).text == "the peak rate is 5e-04 after step 51");
}

TEST_CASE("admin: a rate that no step could have is refused") {
  OneLeader none;
  none.on(leader_event::AdminArrived{{0, Nonce(99)}, "admin", {AdminAction::kRate, {}, 0, 5e-4}});
  REQUIRE(none.sent.size() == 1);
  CHECK(std::get<AdminAnswered>(none.sent.front().body).text ==
        "no step of this run has been done yet");
  Steered one;
  one.enter(100);
  CHECK(one.ask_rate(5e-4).text == "no step is left for another rate");
  Steered often;
  Plan plan = *often.group.plan();
  plan.predecessor = plan.id;
  plan.id.counter += 100;
  plan.rates.assign(limits::kRateChanges, {20, 1.0});
  often.apply(plan);
  CHECK(often.ask_rate(5e-4).text.starts_with("the rate of this run was changed 256 times"));
}

TEST_CASE("admin: a stop ends the run in order, once") {
  Steered one;
  CHECK(one.ask(AdminAction::kStop).state == AdminState::kUnderWay);
  CHECK(one.ask(AdminAction::kStop).state == AdminState::kUnderWay);
  REQUIRE(one.proposals.size() == 1);
  const auto* end = one.first_proposed<JobEnded>();
  REQUIRE(end != nullptr);
  CHECK(end->exit_code == 143);
  CHECK(end->reason == "stopped by admin");
  CHECK(one.told.size() == 1);
}

}  // namespace
}  // namespace starling::elastic
