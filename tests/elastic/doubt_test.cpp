// Checkpoints that are in doubt, and how the leader makes them say so.

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/elastic/checkpoint_leader.h"

namespace starling::elastic {
namespace {

// Worker `nonce`, at this version, says that a micro-batch came out with other bits.
void tell_difference(CheckpointLeader& one, std::uint64_t nonce, Version version,
                     const Difference& d) {
  Heartbeat beat{one.group.plan()->id, version, {}};
  beat.data = kReadData;
  beat.differences = {d};
  one.say(nonce, beat);
}

// Goal: a run that goes on from it says so, though its own workers find nothing.
TEST_CASE("leader: a checkpoint after contributions that differ is in doubt") {
  CheckpointLeader one;
  one.publish(10);
  CHECK(one.stores.back().checkpoint.doubted_from == kNoVersion);
  tell_difference(one, 1, 21, {17, 0, 1, 100, 5, 6, /*by=*/1});
  one.publish(20);
  CHECK(one.stores.back().checkpoint.doubted_from == Version{0});
}

// Hidden state may have been there for long before a difference was seen.
TEST_CASE("leader: checkpoints that were complete before contributions differ are in doubt, too") {
  CheckpointLeader one;
  one.publish(10);
  for (std::uint64_t nonce : {1, 2}) one.say(nonce, one.part(nonce, 20));
  one.vote_digest(20, {kSegments, 0});
  one.on(leader_event::Stored{20, ""});  // and proposed: on its way
  tell_difference(one, 1, 21, {20, 0, 1, 100, 5, 6, /*by=*/1});
  one.commit();
  one.commit();
  CHECK(one.complete() == std::vector<Version>{10, 20});
  for (const Checkpoint& c : one.group.checkpoints()) CHECK(c.doubted_from == Version{0});
  CHECK(std::any_of(one.tidied.begin(), one.tidied.end(),
                    [](const leader_command::Tidy& t) { return t.doubted == 0; }));
}

// The keeper of the leader before it may not have come to an end of it.
TEST_CASE("leader: a new one orders manifests to be marked, though the log has the doubt") {
  CheckpointLeader one;
  one.publish(10);
  Heartbeat beat{one.group.plan()->id, 21, {}};
  beat.data = kReadData;
  beat.differences = {{17, 0, 1, 100, 5, 6, /*by=*/1}};
  one.say(1, beat);
  one.commit();
  CHECK(one.group.checkpoints().front().doubted_from == Version{0});
  one.elect(2);
  one.tidied.clear();
  one.say(2, beat);  // which has it from a vote of worker 1
  REQUIRE(one.tidied.size() == 1);
  CHECK(one.tidied[0].doubted == Version{0});
  one.say(1, beat);
  CHECK(one.tidied.size() == 1);
}

// Goal: the first manifest, which no list has yet, does not stay without its doubt.
TEST_CASE("leader: a manifest that is on its way when the doubt comes is ordered to be marked") {
  CheckpointLeader one;
  for (std::uint64_t nonce : {1, 2}) one.say(nonce, one.part(nonce, 20));
  one.vote_digest(20, {kSegments, 0});
  REQUIRE(one.stores.size() == 1);
  tell_difference(one, 1, 21, {20, 0, 1, 100, 5, 6, /*by=*/1});
  REQUIRE(!one.tidied.empty());
  CHECK(one.tidied.back().doubted == Version{0});
}

// Goal: what a model keeps from step to step is nowhere taken for new because a run began there.
// Method: a run that went on from step 20, with its script as it was, or changed since.
TEST_CASE(
    "leader: a difference puts checkpoints of earlier runs in doubt, unless the script was "
    "another") {
  const std::string script =
      "isa AVX2, script 1f/5a, data 3a, weights 4b, first gradient 5c, probe of steps 6d";
  for (const bool changed : {false, true}) {
    CAPTURE(changed);
    std::vector<Checkpoint> earlier(2);
    for (std::size_t i = 0; i < 2; ++i) {
      earlier[i].version = Version(10 * (i + 1));
      earlier[i].fingerprint = {7, 7};
      earlier[i].fingerprint_text = script;
      earlier[i].data = kReadData;
    }
    std::string now = script;
    if (changed) now.replace(now.find("5a"), 2, "6b");
    CheckpointLeader one(/*stops=*/false, earlier, now);
    REQUIRE(one.group.begun() == 20);
    const bool said = std::any_of(one.warnings.begin(), one.warnings.end(), [](const auto& text) {
      return text.find("since the checkpoint of step 20 the script has changed (") == 0;
    });
    CHECK(said == changed);
    one.publish(30);
    tell_difference(one, 2, 35, {34, 0, 1, 100, 5, 6, /*by=*/2});
    for (int i = 0; i < 3; ++i) one.commit();
    for (const Checkpoint& c : one.group.checkpoints()) {
      CAPTURE(c.version.value());
      CHECK(c.doubted_from == (!changed ? Version{0} : c.version > 20 ? Version{20} : kNoVersion));
    }
  }
}

// Goal: nobody goes on from the newest checkpoint as if it were a good one, because the end names it.
TEST_CASE("leader: an end by on_mismatch names the newest checkpoint with its doubt") {
  CheckpointLeader one(/*stops=*/true);
  one.publish(10);
  tell_difference(one, 1, 21, {17, 0, 1, 100, 5, 6, /*by=*/1});
  one.commit();
  one.commit();
  REQUIRE(one.group.end().has_value());
  CHECK(one.group.end()->reason.find(
            "the newest checkpoint is of step 10 in /shared, in doubt from step 0 on") !=
        std::string::npos);
}

// What a model has kept since the run began is in the checkpoint that the run went back to, too.
TEST_CASE("leader: a difference after a restart puts all checkpoints of the run in doubt") {
  CheckpointLeader one;
  one.publish(10);
  one.publish(20);
  one.die(1);
  one.die(2);
  for (std::uint64_t nonce : {3, 4}) one.join(nonce);
  one.pass_time(50);
  for (std::uint64_t nonce : {3, 4}) one.report(nonce, kNoVersion);
  one.commit();
  REQUIRE(one.group.start() == 20);
  one.enter(25);
  tell_difference(one, 4, 25, {24, 0, 3, 100, 5, 6, /*by=*/4});
  one.commit();
  CHECK(one.complete() == std::vector<Version>{10, 20});
  for (const Checkpoint& c : one.group.checkpoints()) CHECK(c.doubted_from == Version{0});
}

}  // namespace
}  // namespace starling::elastic
