// Checkpoints at the leader: from shards to a complete one, and what it decides when state is gone.
// Its proposals are committed when the test says so.

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/elastic/checkpoint_leader.h"

namespace starling::elastic {
namespace {

// ---- Writing ----------------------------------------------------------------------------------

TEST_CASE("leader: a checkpoint is stored when every segment is there, and exists when committed") {
  CheckpointLeader one;
  one.say(1, one.part(1, 10));
  CHECK(one.stores.empty());
  one.say(2, one.part(2, 10));
  REQUIRE(one.stores.size() == 1);
  CHECK(one.stores[0].checkpoint == Checkpoint{10, {kSegments, 0}, {7, 7}, "", kReadData});
  CHECK(one.stores[0].record.version == 9);
  CHECK(one.first_proposed<Published>() == nullptr);  // the manifest may still fail
  one.on(leader_event::Stored{10, ""});
  REQUIRE(one.first_proposed<Published>() != nullptr);
  CHECK(one.complete().empty());
  one.commit();
  CHECK(one.complete() == std::vector<Version>{10});
}

// Before a run is ended: of any version, not only of a multiple.
TEST_CASE("leader: members are asked for a checkpoint until one above the newest is complete") {
  CheckpointLeader one;
  one.publish(10);
  one.say(1, one.part(1, 13));
  one.say(2, one.part(2, 13));
  CHECK(one.complete() == std::vector<Version>{10});  // nobody has asked for that one
  one.on(leader_event::AskCheckpoint{});
  for (std::uint64_t nonce : {1, 2}) CHECK(one.sent_to<CheckpointAsked>(nonce));
  one.sent.clear();
  one.pass_time(100);
  for (std::uint64_t nonce : {1, 2}) CHECK(one.sent_to<CheckpointAsked>(nonce));  // it may be lost
  one.publish(14);
  CHECK(one.complete() == std::vector<Version>{10, 14});
  one.sent.clear();
  one.pass_time(100);
  for (std::uint64_t nonce : {1, 2}) CHECK(!one.sent_to<CheckpointAsked>(nonce));
}

// Goal: no checkpoint is much older than the job says, however long its steps take.
TEST_CASE("leader: a checkpoint is asked for when the newest is too old") {
  CheckpointLeader one;
  one.every_seconds = 60;
  one.elect(2);
  const auto asked = [&] {
    return one.sent_to<CheckpointAsked>(1) && one.sent_to<CheckpointAsked>(2);
  };
  one.pass_time_hearing({1, 2}, 120'000, Heartbeat{one.group.plan()->id, 21, {}});
  CHECK(!asked());  // no step is known to this leader yet
  Progress progress{one.group.plan()->id, {}, 2, {}, 1};
  progress.record.version = 21;
  one.say(1, progress);
  one.pass_time_hearing({1, 2}, 59'000, Heartbeat{one.group.plan()->id, 21, {}});
  CHECK(!asked());
  one.pass_time_hearing({1, 2}, 2'000, Heartbeat{one.group.plan()->id, 21, {}});
  CHECK(asked());
  one.publish(23);
  one.sent.clear();
  one.pass_time_hearing({1, 2}, 59'000, Heartbeat{one.group.plan()->id, 21, {}});
  CHECK(!asked());  // one that was complete, asked for or not, counts
  one.pass_time_hearing({1, 2}, 2'000, Heartbeat{one.group.plan()->id, 21, {}});
  CHECK(asked());
}

TEST_CASE("leader: when a checkpoint that was asked for cannot be written, the next one is") {
  CheckpointLeader one;
  one.on(leader_event::AskCheckpoint{});
  ShardWritten full{14, {}, {}, "no space left"};
  one.say(1, full);
  REQUIRE(one.warnings.size() == 1);
  one.sent.clear();
  one.pass_time(100);
  const auto again = std::find_if(one.sent.begin(), one.sent.end(), [](const auto& send) {
    return std::holds_alternative<CheckpointAsked>(send.body);
  });
  REQUIRE(again != one.sent.end());
  CHECK(std::get<CheckpointAsked>(again->body).above == 14);
}

TEST_CASE("leader: where votes carry a digest, the shards must have it") {
  CheckpointLeader one;
  for (std::uint64_t nonce : {1, 2}) one.say(nonce, one.part(nonce, 20));
  CHECK(one.stores.empty());  // the vote of step 20 has not passed
  SUBCASE("it is the same") {
    one.vote_digest(20, {kSegments, 0});
    CHECK(one.stores.size() == 1);
  }
  SUBCASE("it is another one") {
    one.vote_digest(20, {kSegments + 1, 0});
    CHECK(one.stores.empty());
    REQUIRE(one.warnings.size() == 1);
    CHECK(one.warnings[0].find("checkpoint of step 20 is given up: its shards have digest") == 0);
  }
}

TEST_CASE("leader: a part that cannot be written costs one checkpoint and one warning") {
  CheckpointLeader one;
  one.say(1, one.part(1, 10));
  ShardWritten failed{10, {}, {}, "no space left on device"};
  one.say(2, failed);
  one.say(2, one.part(2, 10));
  CHECK(one.stores.empty());
  CHECK(one.warnings ==
        std::vector<std::string>{"checkpoint of step 10 is given up: 2: no space left on device"});
  one.publish(20);
  CHECK(one.complete() == std::vector<Version>{20});
  // What was written of the first goes with the next one.
  CHECK(one.tidied.back().below == 20);
  CHECK(one.tidied.back().kept == std::vector<Version>{20});
}

TEST_CASE("leader: parts of two epochs make one checkpoint, and only members' count") {
  CheckpointLeader one;
  const ShardWritten second = one.part(2, 10);
  one.say(1, one.part(1, 10));
  one.say(9, second);  // a stranger to the plan
  CHECK(one.stores.empty());
  ShardWritten both = one.part(1, 10);  // what another owner wrote again
  both.shard.file = "again";
  both.shard.segments.insert(both.shard.segments.end(), second.shard.segments.begin(),
                             second.shard.segments.end());
  one.say(2, both);
  REQUIRE(one.stores.size() == 1);
  CHECK(one.stores[0].shards.size() == 2);
  CHECK(one.stores[0].shards[1].segments == second.shard.segments);  // each segment once
}

TEST_CASE("leader: only the newest are kept") {
  CheckpointLeader one;
  for (const Version version : std::vector<Version>{10, 20, 30, 40}) one.publish(version);
  CHECK(one.complete() == std::vector<Version>{30, 40});
  CHECK(one.tidied.back().below == 40);
  CHECK(one.tidied.back().kept == std::vector<Version>{30, 40});
  one.say(1, one.part(1, 20));  // late by far
  CHECK(one.complete() == std::vector<Version>{30, 40});
}

// ---- Restarting -------------------------------------------------------------------------------

TEST_CASE("leader: with all dead, the next plan is fresh from the newest checkpoint") {
  CheckpointLeader one;
  one.publish(10);
  one.publish(20);
  one.die(1);
  one.die(2);
  REQUIRE(one.group.restart().has_value());
  CHECK(one.group.start() == 20);
  for (std::uint64_t nonce : {3, 4}) one.join(nonce);
  one.pass_time(50);
  for (std::uint64_t nonce : {3, 4}) one.report(nonce, kNoVersion);
  REQUIRE(one.first_proposed<Plan>() != nullptr);
  const Plan plan = *one.first_proposed<Plan>();
  CHECK(plan.kind == PlanKind::kFresh);
  CHECK(plan.base == 20);
  CHECK(plan.begin == BeginAt::kGather);
  CHECK(plan.members.size() == 2);
  one.commit();
  CHECK(!one.group.restart());
}

// Goal: P5's other half. Method: the same losses without a checkpoint.
TEST_CASE("leader: without a checkpoint the job ends with exit code 4") {
  CheckpointLeader one;
  one.die(1);
  one.die(2);
  REQUIRE(one.group.end().has_value());
  CHECK(one.group.end()->exit_code == 4);
  CHECK(one.group.end()->reason.find("there is no checkpoint to start from") != std::string::npos);
}

// Goal: a job is not said to have lost its state when its workers have ended themselves. Method: both
// members end, with these exit codes (0: killed), with a checkpoint and without one.
TEST_CASE("leader: what has ended every worker is the end of the job") {
  const auto end_of = [](std::uint8_t first, std::uint8_t second, bool checkpoint) {
    CheckpointLeader one;
    if (checkpoint) one.publish(10);
    const auto dies = [&](std::uint64_t nonce, std::uint8_t code) {
      one.say(nonce, Death{{nonce, Nonce(nonce)}, {}, "bad record 7", code});
      one.commit();
    };
    dies(1, first);
    dies(2, second);
    if (one.group.restart()) return std::string("restart");
    REQUIRE(one.group.end().has_value());
    return std::to_string(one.group.end()->exit_code) + " " + one.group.end()->reason;
  };
  const std::string said = "every worker has ended itself, the last one 2: bad record 7; ";
  CHECK(end_of(2, 2, false) == "2 " + said + "there is no checkpoint to start from");
  CHECK(end_of(2, 2, true) == "2 " + said + "the newest checkpoint is of step 10 in /shared");
  CHECK(end_of(3, 3, false) == "3 " + said + "there is no checkpoint to start from");
  CHECK(end_of(3, 3, true) == "restart");  // memory may be there the next time
  CHECK(end_of(0, 2, false).substr(0, 14) == "4 state lost: ");
  CHECK(end_of(2, 3, false).substr(0, 14) == "4 state lost: ");
  CHECK(end_of(2, 0, true) == "restart");
}

TEST_CASE("leader: who has some state when the rest of it is gone begins a new life") {
  CheckpointLeader one;
  one.publish(10);
  const EpochId lost = one.group.plan()->id;
  one.die(1);
  // 2 may have everything, for all that is known.
  CHECK(one.first_proposed<Restarted>() == nullptr);
  one.report(2, 21);
  REQUIRE(one.first_proposed<Restarted>() != nullptr);
  CHECK(one.first_proposed<Restarted>()->lost == lost);
  CHECK(one.first_proposed<Restarted>()->version == 10);
  CHECK(!one.sent_to<Fenced>(2));
  one.commit();
  CHECK(one.sent_to<Fenced>(2));
  one.join(5);  // its next life
  one.pass_time(kRestartWindow - 1);
  CHECK(one.asked().counter == lost.counter + 1);  // one of two: others are waited for
  one.pass_time(2);
  CHECK(one.asked().counter > lost.counter + 1);
  one.report(5, kNoVersion);
  REQUIRE(one.first_proposed<Plan>() != nullptr);
  CHECK(one.first_proposed<Plan>()->members.size() == 1);
}

// R11. Method: one that is neither dead nor heard, alone in knowing whether its epoch goes on.
TEST_CASE("leader: R11, no restart while an epoch may still run") {
  CheckpointLeader one;
  one.publish(10);
  one.die(1);
  one.join(5);
  one.pass_time(3 * kLease);
  one.report(5, kNoVersion);
  one.pass_time(50000);
  CHECK(one.first_proposed<Restarted>() == nullptr);
  one.pass_time(15000);  // state_timeout_ms: a clear end, which says what there is
  one.commit();
  REQUIRE(one.group.end().has_value());
  CHECK(one.group.end()->exit_code == 4);
  CHECK(one.group.end()->reason.find("the newest checkpoint is of step 10 in /shared") !=
        std::string::npos);
}

TEST_CASE("leader: a restart that nobody comes to ends the job") {
  CheckpointLeader one;
  one.publish(10);
  one.die(1);
  one.die(2);
  one.pass_time(kStartTimeout);
  CHECK(!one.group.end());
  one.pass_time(2);
  one.commit();
  REQUIRE(one.group.end().has_value());
  CHECK(one.group.end()->exit_code == 4);
  CHECK(one.group.end()->reason.find("no worker came within 30000 ms") != std::string::npos);
}

TEST_CASE("leader: of a damaged checkpoint the one before it is used, as long as there is one") {
  CheckpointLeader one;
  one.publish(10);
  one.publish(20);
  one.die(1);
  one.die(2);
  for (std::uint64_t nonce : {3, 4}) one.join(nonce);
  one.pass_time(50);
  for (std::uint64_t nonce : {3, 4}) one.report(nonce, kNoVersion);
  one.commit();
  REQUIRE(one.group.plan()->base == 20);
  one.say(3, Unloadable{20, "shard-1 is damaged"});
  one.say(4, Unloadable{20, "shard-1 is damaged"});
  one.commit();
  CHECK(one.complete() == std::vector<Version>{10});
  CHECK(one.warnings ==
        std::vector<std::string>{"checkpoint of step 20 cannot be used: 3: shard-1 is damaged"});
  for (std::uint64_t nonce : {3, 4}) {  // they have stopped by themselves
    Report stopped;
    stopped.promise = one.group.plan()->id.next();
    stopped.copies.assign(kSegments, false);
    one.say(nonce, stopped);
  }
  one.pass_time(50);
  for (std::uint64_t nonce : {3, 4}) one.report(nonce, kNoVersion);
  one.commit();
  REQUIRE(one.group.restart().has_value());
  CHECK(one.group.start() == 10);
}

TEST_CASE("leader: a new leader goes on with a restart") {
  CheckpointLeader one;
  one.publish(10);
  one.die(1);
  one.die(2);
  one.elect(/*term=*/2);
  for (std::uint64_t nonce : {3, 4}) one.join(nonce);
  one.pass_time(50);
  for (std::uint64_t nonce : {3, 4}) one.report(nonce, kNoVersion);
  one.commit();
  CHECK(one.group.plan()->kind == PlanKind::kFresh);
  CHECK(one.group.plan()->base == 10);
}

TEST_CASE("leader: a job that goes on from checkpoints begins at the newest, with its bits only") {
  CheckpointLeader one;
  one.group = Group();
  one.elect(1);
  one.sent.clear();
  JobStarted job;
  job.checkpoints = {{10, {1, 1}, {7, 7}, "isa a"}, {30, {2, 2}, {7, 7}, "isa a"}};
  one.apply(job);
  Join other;
  other.who = {0, 8};
  other.fingerprint = {9, 9};
  other.fingerprint_text = "isa b";
  one.say(8, other);
  CHECK(one.refusal_of(8).find("the checkpoint of step 30: ") != std::string::npos);  // the newest
  for (std::uint64_t nonce : {1, 2}) one.join(nonce);
  for (std::uint64_t nonce : {1, 2}) one.report(nonce, kNoVersion);
  one.commit();
  REQUIRE(one.group.plan().has_value());
  CHECK(one.group.plan()->kind == PlanKind::kFresh);
  CHECK(one.group.plan()->base == 30);
}

TEST_CASE("leader: a job goes on from a checkpoint with another script, not with other gradients") {
  const auto text = [](const char* script, const char* gradient) {
    return std::string("isa a, script ") + script + ", data 3a, weights 4b, first gradient " +
           gradient + ", probe of steps 6d, starling 0.1.0";
  };
  CheckpointLeader one;
  one.group = Group();
  one.elect(1);
  JobStarted job;
  job.checkpoints = {{10, {1, 1}, {6, 6}, text("1e", "5c")},
                     {30, {2, 2}, {7, 7}, text("1f", "5c")}};
  one.apply(job);
  const auto refused = [&](std::uint64_t nonce, std::uint64_t hash, const std::string& of) {
    Join join;
    join.who = {0, Nonce(nonce)};
    join.fingerprint = {hash, hash};
    join.fingerprint_text = of;
    one.sent.clear();
    one.say(nonce, join);
    one.commit();
    return !one.refusal_of(nonce).empty();
  };
  CHECK(refused(8, 9, text("2f", "5d")));
  CHECK_FALSE(refused(9, 10, text("2f", "5c")));
}

// ---- The log ----------------------------------------------------------------------------------

TEST_CASE("group: R10, a restart is void if the plan that it ends is not the last one") {
  CheckpointLeader one;
  one.publish(10);
  const EpochId last = one.group.plan()->id;
  CHECK(!one.group.apply(Restarted{{last.term, last.counter + 1}, 10, "x"}));
  CHECK(!one.group.apply(Restarted{last, 20, "there is no such checkpoint"}));
  CHECK(one.group.apply(Restarted{last, 10, "x"}));
  CHECK(!one.group.apply(Restarted{last, 10, "again"}));
  Plan plan = *one.group.plan();
  plan.predecessor = last;
  plan.id = last.next();
  plan.kind = PlanKind::kForced;
  CHECK(!one.group.apply(plan));  // only a fresh one goes on from there
  plan.kind = PlanKind::kFresh;
  CHECK(one.group.apply(plan));
}

TEST_CASE("group: a restart is void if a newer checkpoint was published before it in the log") {
  CheckpointLeader one;
  one.publish(10);
  const EpochId last = one.group.plan()->id;
  const Restarted proposed{last, 10, "x"};
  one.publish(20);
  CHECK(!one.group.apply(proposed));
  CHECK(one.group.start() == 0);
  CHECK(one.group.apply(Restarted{last, 20, "x"}));
  CHECK(one.group.start() == 20);
}

}  // namespace
}  // namespace starling::elastic
