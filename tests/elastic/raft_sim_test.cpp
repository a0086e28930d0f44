// Raft under random schedules: a group of members with disks and a network that loses, doubles and
// reorders; crashes that lose what was not synced; partitions. Judged from outside, after each
// event, by checks that do not call the code under test. Rules I1-I12, I20, M1-M5 as in the comments.
//
// STARLING_SIM_SEED=n runs that schedule alone; STARLING_SIM_RUNS=n sets their number.

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "tests/elastic/raft_world.h"

namespace starling::elastic {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Goal: no schedule breaks a rule, and once faults stop the group elects, commits and agrees.
TEST_CASE("raft: random schedules keep every rule and end in agreement") {
  const auto only = from_environment("STARLING_SIM_SEED", 0);
  const auto runs = only ? 1 : from_environment("STARLING_SIM_RUNS", 1000);
  const auto first = only ? only : 1;
  std::uint64_t events = 0;
  std::uint64_t committed = 0;
  std::uint64_t leaders = 0;
  std::uint64_t crashes = 0, wipes = 0, restores = 0, changes = 0, hand_overs = 0;
  for (auto seed = first; seed < first + runs; ++seed) {
    RaftWorld world(seed, RaftBug::kNone);
    world.run();
    REQUIRE_MESSAGE(world.violation().empty(),
                    "STARLING_SIM_SEED=" << seed << ": " << world.violation());
    events += world.events();
    committed += world.committed_count();
    leaders += world.leader_count();
    crashes += world.crash_count();
    wipes += world.wipe_count();
    restores += world.restore_count();
    changes += world.change_count();
    hand_overs += world.hand_over_count();
  }
  MESSAGE(runs << " schedules, " << events << " events, " << committed << " entries committed, "
               << leaders << " leaders, " << crashes << " crashes, " << wipes << " wiped folders, "
               << restores << " snapshots restored, " << changes << " changes of groups, "
               << hand_overs << " leaders that hand over");
  if (only) return;
  // The schedules must reach what they are for.
  CHECK(committed > 20 * runs);
  CHECK(leaders > 2 * runs);  // few more than faults, as members wait for one that is late
  CHECK(crashes > runs);
  CHECK(wipes > runs / 5);
  CHECK(restores > runs / 4);
  CHECK(changes > runs);
  CHECK(hand_overs > runs / 10);
}

// Goal: schedules beyond those above that once failed hold.
TEST_CASE("raft: schedules that once failed hold") {
  // 5948: a leader is given a refusal of what its earlier life sent, by a clock that was ahead.
  // 14031: a learner has what no voter that is left has.
  // 72699: a candidate and its voter lose their logs, and the voter votes for another one in that term.
  for (const std::uint64_t seed : {5948, 14031, 72699}) {
    RaftWorld world(seed, RaftBug::kNone);
    world.run();
    CHECK_MESSAGE(world.violation().empty(),
                  "STARLING_SIM_SEED=" << seed << ": " << world.violation());
  }
}

// Goal: the same seed is the same history, so that a failure can be looked at.
TEST_CASE("raft: a schedule repeats bit for bit") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RaftWorld a(seed, RaftBug::kNone);
    RaftWorld b(seed, RaftBug::kNone);
    a.run();
    b.run();
    CHECK(a.history_hash() == b.history_hash());
  }
}

// Goal: the checks above can fail. Method: each planted fault must be found within the given number
// of schedules, by a rule that it breaks.
TEST_CASE("raft: every planted fault is found by the random schedules") {
  struct Case {
    std::string name;
    RaftBug bug;
    std::uint64_t runs;
  };
  const Case cases[] = {
      {"clears the vote when it steps down", RaftBug::kClearVoteOnStepDown, 2000},
      {"counts its own vote before it is durable", RaftBug::kSelfVoteEarly, 100},
      {"counts its own copy before it is durable", RaftBug::kSelfAckEarly, 100},
      {"commits entries of older terms by counting", RaftBug::kCommitOldTerm, 1000},
      {"follower commits what it has not verified", RaftBug::kCommitUnverified, 1000},
      {"takes a refusal's hint as a copy", RaftBug::kMatchFromReject, 1000},
      {"ignores that the leader lives", RaftBug::kNoStickiness, 1000},
      {"quorum one too small", RaftBug::kQuorumTooSmall, 100},
      {"cuts the log at each append", RaftBug::kTruncateAlways, 1000},
      {"votes for any log", RaftBug::kVoteForAnyLog, 1000},
      {"leads on without its group", RaftBug::kNoCheckQuorum, 1000},
      {"a wiped member votes", RaftBug::kWipedVotes, 1000},
      {"a wiped member votes by its own log", RaftBug::kNoFloor, 3000},
      {"changes the group twice at once", RaftBug::kChangesAtOnce, 3000},
      {"a new member votes before it has the log", RaftBug::kVotesUnread, 100},
      {"a removed member stands without being asked for", RaftBug::kRemovedStands, 1000},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::string found;
    std::uint64_t seed = 1;
    for (; seed <= c.runs && found.empty(); ++seed) {
      RaftWorld world(seed, c.bug);
      world.run();
      found = world.violation();
    }
    CHECK_MESSAGE(!found.empty(), "not found in " << c.runs << " schedules");
    if (!found.empty()) MESSAGE(c.name << ": schedule " << seed - 1 << ": " << found);
  }
}

}  // namespace
}  // namespace starling::elastic
