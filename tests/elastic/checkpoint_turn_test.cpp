// Which versions are written: every fourth of twenty-two steps, and what somebody asks for.

#include "elastic/protocol/checkpoint_turn.h"

#include <doctest/doctest.h>

#include <vector>

namespace starling::elastic {
namespace {

using Votes = CheckpointTurn::Votes;

constexpr Votes kQuiet{}, kBusy{/*anybody_writes=*/true, false}, kWanted{false, true},
    kWantedWhileBusy{true, true};

CheckpointTurn every_fourth() {
  return CheckpointTurn(/*every=*/4, /*steps=*/22);
}

std::vector<Version> due(const CheckpointTurn& turn, const Votes& votes) {
  std::vector<Version> versions;
  for (Version v = 1; v <= 24; ++v)
    if (turn.due(v, votes)) versions.push_back(v);
  return versions;
}

TEST_CASE("checkpoint turn: every multiple is due, the last version of the job is not") {
  CHECK(due(every_fourth(), kQuiet) == std::vector<Version>{4, 8, 12, 16, 20});
  CHECK(due(CheckpointTurn(4, 20), kQuiet) == std::vector<Version>{4, 8, 12, 16});
}

TEST_CASE("checkpoint turn: what somebody wants is due at once, but not while somebody writes") {
  CHECK(every_fourth().due(5, kWanted));
  CHECK_FALSE(every_fourth().due(5, kWantedWhileBusy));
  CHECK(every_fourth().due(8, kWantedWhileBusy));
  CHECK_FALSE(every_fourth().due(22, kWanted));  // the job's end
}

TEST_CASE("checkpoint turn: a job without checkpoints writes none, whoever wants one") {
  CHECK(due(CheckpointTurn(0, 22), kWanted).empty());
}

// Goal: all skip the same versions. Method: what follows is the same where this worker is the one
// that writes and where another is, as votes say so.
TEST_CASE("checkpoint turn: while anybody writes, nobody begins another") {
  CheckpointTurn turn = every_fourth();
  CHECK_FALSE(turn.begin(4, kBusy));
  CHECK_FALSE(turn.writing());
  CHECK(turn.begin(8, kQuiet));
  CHECK(turn.writing());
  CHECK_FALSE(turn.begin(12, kQuiet));
  turn.end(10);
  CHECK_FALSE(turn.writing());
  CHECK(turn.begin(16, kQuiet));
  turn.check_invariants();
}

TEST_CASE("checkpoint turn: one is wanted until a version above it is begun") {
  CheckpointTurn turn = every_fourth();
  CHECK_FALSE(turn.wanted());
  turn.ask(4, 0);
  turn.ask(3, 0);  // said late
  CHECK(turn.wanted());
  REQUIRE(turn.begin(4, kQuiet));
  turn.end(10);
  CHECK(turn.wanted());  // it is to be above 4
  REQUIRE(turn.begin(5, kWanted));
  CHECK_FALSE(turn.wanted());
  turn.end(10);
  turn.ask(5, 10);  // that one was lost
  CHECK(turn.wanted());
}

// Goal: a checkpoint whose words no coordinator heard, as a majority was away, keeps nobody waiting.
TEST_CASE("checkpoint turn: one that was written and that nobody knows of is wanted again") {
  CheckpointTurn turn = every_fourth();
  REQUIRE(turn.begin(8, kQuiet));
  turn.ask(4, 1000);
  turn.end(1000);
  turn.ask(4, 1000 + CheckpointTurn::kLostMs - 1);  // its words may be on their way
  CHECK_FALSE(turn.wanted());
  turn.heard(kBusy);
  turn.ask(4, 1000 + CheckpointTurn::kLostMs);  // another member writes still
  CHECK_FALSE(turn.wanted());
  turn.heard(kQuiet);
  turn.ask(4, 1000 + CheckpointTurn::kLostMs);
  CHECK(turn.wanted());
  CHECK(turn.due(11, kWanted));
  turn.check_invariants();
}

}  // namespace
}  // namespace starling::elastic
