// Ends in order: a run that is told to end, and a group whose members all have notice.

#include <algorithm>
#include <string>
#include <vector>

#include "tests/elastic/one_leader.h"

namespace starling::elastic {
namespace {

constexpr std::uint64_t kStart = 30000;  // ms

// Workers 1, 2, 3 who hold everything, of a job with checkpoints.
struct Ending : OneLeader {
  Ending() {
    LeaderConfig config;
    config.micro_batches = 6;
    config.steps = 100;
    config.segments = kSegments;
    config.wanted_workers = 3;
    config.elastic.lease_ms = config.report_deadline_ms = kLease;
    config.elastic.start_timeout_ms = kStart;
    config.restart_window_ms = 100;
    config.checkpoint.every = 1000;
    config.checkpoint.dir = "/shared";
    config.elastic.digest_every = 0;
    lead(config, 1);
    begin(21);
  }
  void take(const LeaderCommand& command) override {
    const auto* store = std::get_if<leader_command::Store>(&command);
    if (store) stored = store->checkpoint.version;
    if (const auto* event = std::get_if<Event>(&command))
      if (const auto* e = std::get_if<event::Warning>(event)) warnings.push_back(e->text);
  }
  std::size_t asks() const {
    return static_cast<std::size_t>(
        std::count_if(sent.begin(), sent.end(), [](const leader_command::Send& send) {
          return std::holds_alternative<CheckpointAsked>(send.body);
        }));
  }
  void everybody_has_notice() {
    for (std::uint64_t nonce : {1, 2, 3}) say(nonce, Leave{6000});
    commit();
    hear(100);
  }
  void hear(std::uint64_t ms) {
    pass_time_hearing({1, 2, 3}, ms, Heartbeat{group.plan()->id, 21, {}});
  }
  // One that was asked for, from the shard to the committed entry.
  void publish(Version version) {
    ShardWritten part{version, {}, {"shard", 10, {}}, {}};
    part.record.version = version - 1;
    for (SegmentId s = 0; s < kSegments; ++s) part.shard.segments.push_back({s, {1, 0}});
    say(1, part);
    REQUIRE(stored == version);
    on(leader_event::Stored{version, ""});
    commit();
  }
  Version stored = 0;
  std::vector<std::string> warnings;
};

// Goal: who dies because the run ends is no loss, and no restart follows.
TEST_CASE("leader: told to end it commits the end, and deaths after it are none") {
  Ending one;
  Progress progress{one.group.plan()->id, {}, 3, {}, 1};
  progress.record.version = 21;
  one.say(1, progress);
  one.on(leader_event::EndRun{15, "ended by SIGTERM"});
  const auto* end = one.first_proposed<JobEnded>();
  REQUIRE(end != nullptr);
  CHECK(end->exit_code == 143);
  CHECK(end->version == 22);
  CHECK(end->reason == "ended by SIGTERM");
  one.on(leader_event::EndRun{15, "ended by SIGTERM"});  // said again
  one.commit();
  for (std::uint64_t nonce : {1, 2, 3}) one.say(nonce, Death{{nonce, Nonce(nonce)}});
  one.pass_time(10 * kLease);
  CHECK(one.proposals.empty());
  const auto told = [&](std::uint64_t nonce) {
    return std::any_of(one.sent.begin(), one.sent.end(), [&](const leader_command::Send& send) {
      return send.to.nonce == nonce && std::holds_alternative<Ended>(send.body);
    });
  };
  for (std::uint64_t nonce : {1, 2, 3}) CHECK(told(nonce));
}

TEST_CASE("leader: it says when nobody who stays has the state") {
  Ending one;
  one.say(1, Leave{6000});
  one.say(2, Leave{6000});
  one.commit();
  CHECK(one.warnings.empty());  // worker 3 stays
  one.say(3, Leave{6000});
  one.commit();
  REQUIRE(one.warnings.size() == 1);
  CHECK(one.warnings[0].find(" is to leave, and no worker that stays has the state") !=
        std::string::npos);
  one.say(3, Leave{3000});  // said again
  one.commit();
  CHECK(one.warnings.size() == 1);
}

TEST_CASE("leader: when all members have notice a checkpoint is asked for, again and again") {
  Ending one;
  one.say(1, Leave{6000});
  one.say(2, Leave{6000});
  one.commit();
  one.hear(50);
  CHECK(one.asks() == 0);  // worker 3 stays
  one.say(3, Leave{6000});
  one.commit();
  one.hear(100);
  CHECK(one.asks() >= 3);
  one.commit();  // the plan that marks them as leaving
  one.publish(25);
  one.sent.clear();
  one.hear(kLease / 2);
  CHECK(one.asks() == 0);  // not more than one in a lease
  one.hear(kLease);
  CHECK(one.asks() >= 3);
}

// Goal: an end in order is no state that was lost. Method: nobody comes, or somebody does.
TEST_CASE("leader: when all have left after a checkpoint the run ends in order, or goes on") {
  Ending one;
  one.everybody_has_notice();
  one.publish(25);
  for (std::uint64_t nonce : {1, 2, 3}) one.die(nonce);
  one.pass_time(kStart / 2);
  CHECK(one.first_proposed<Restarted>() == nullptr);
  CHECK(one.first_proposed<JobEnded>() == nullptr);
  SUBCASE("nobody comes") {
    one.pass_time(kStart);
    const auto* end = one.first_proposed<JobEnded>();
    REQUIRE(end != nullptr);
    CHECK(end->exit_code == 143);
    CHECK(end->reason.find("every worker has left as announced") == 0);
    CHECK(end->reason.find("the newest checkpoint is of step 25 in /shared") != std::string::npos);
  }
  SUBCASE("somebody comes") {
    one.join(4);
    one.report(4, one.asked(), {}, kNoVersion);
    REQUIRE(one.first_proposed<Restarted>() != nullptr);
    CHECK(one.first_proposed<Restarted>()->version == 25);
  }
}

TEST_CASE("leader: when all have left and no checkpoint is there the state is lost") {
  Ending one;
  one.everybody_has_notice();
  for (std::uint64_t nonce : {1, 2, 3}) one.die(nonce);
  REQUIRE(one.group.end());
  CHECK(one.group.end()->exit_code == 4);
}

}  // namespace
}  // namespace starling::elastic
