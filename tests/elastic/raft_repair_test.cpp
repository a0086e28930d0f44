// Members that come back without their log, or too far behind for the leader's.

#include <doctest/doctest.h>

#include "tests/elastic/raft_group.h"

namespace starling::elastic {
namespace {

using namespace raft_test;

HardState lost() {
  HardState hard;
  hard.lost = true;
  return hard;
}

RaftMessage recall_reply(std::uint32_t from, std::uint64_t round, std::uint64_t term,
                         LogPosition last) {
  auto m = reply(RaftKind::kRecallReply, from, term, true, round);
  m.last_index = last.index;
  m.last_term = last.term;
  return m;
}

// Restarts a member of a group with an empty folder.
void wipe(RaftGroup& group, std::uint32_t i) {
  auto c = config(i, static_cast<std::uint32_t>(group.members.size()));
  c.seed = 1000 + group.now;  // another life
  group.members[i] = Raft(c, lost(), {});
  group.applied[i].clear();
}

}  // namespace

// Goal: a vote given before the folder was lost is never given again. Method: member 0 of 3 has
// voted for 1 in term 5 and comes back empty; 2 asks it for the same term at every stage.
TEST_CASE("raft: a wiped member votes for nobody in a term in which it may have voted") {
  Raft raft(config(0, 3), lost(), {});
  raft.tick(1000);
  const auto asked = last_of(raft);
  REQUIRE(asked.kind == RaftKind::kRecall);
  const auto vote = [&](std::uint64_t term, std::uint64_t index) {
    raft.receive(request(RaftKind::kVote, 2, term, index, index == 0 ? 0 : 5));
    const auto said = drain(raft).messages;
    return !said.empty() && said.back().kind == RaftKind::kVoteReply && said.back().granted;
  };
  CHECK(!vote(5, 0));
  CHECK(!vote(6, 9));
  raft.receive(recall_reply(2, asked.round, 4, {4, 7}));
  CHECK(raft.hard_state().lost);  // 1 may know of more
  raft.receive(recall_reply(1, asked.round + 1, 5, {5, 8}));
  CHECK(raft.hard_state().lost);  // to an earlier life
  raft.receive(recall_reply(1, asked.round, 5, {5, 8}));
  CHECK(!raft.hard_state().lost);
  CHECK(raft.term() == 5);
  CHECK(!vote(5, 9));
  CHECK(!vote(6, 7));  // has less than somebody who may rest on this member's copy
  CHECK(vote(7, 8));
  CHECK(!raft.whole());
}

// Goal: it does not stand before it has what it may have acknowledged, and follows meanwhile.
TEST_CASE("raft: a wiped member stands for election when its log is repaired, not before") {
  Raft raft(config(0, 3), lost(), {});
  raft.tick(1000);
  const auto asked = last_of(raft);
  for (std::uint32_t i = 1; i < 3; ++i) raft.receive(recall_reply(i, asked.round, 2, {2, 3}));
  drain(raft);
  for (std::uint64_t t = 1000; t < 1000 + 10 * kT; t += 10) raft.tick(t);
  CHECK(drain(raft).messages.empty());
  raft.receive(append(1, 2, 0, 0, {1, 2}));
  CHECK(drain(raft).messages.back().granted);  // its copies count: they are on its disk
  CHECK(!raft.whole());
  raft.receive(append(1, 2, 2, 2, {2}));
  drain(raft);
  CHECK(raft.whole());
  raft.tick(1000 + 20 * kT);
  CHECK(raft.role() == RaftRole::kPreCandidate);
}

// Goal: leaders that are over stay over. Method: a leader of a term below the one in which the lost
// log had promised to follow none older.
TEST_CASE("raft: a wiped member acknowledges nothing before it knows what it promised") {
  Raft raft(config(0, 3), lost(), {});
  raft.tick(1000);
  const auto asked = last_of(raft);
  raft.receive(append(2, 4, 0, 0, {4}));
  CHECK(drain(raft).messages.empty());
  raft.receive(recall_reply(1, asked.round, 5, {4, 1}));
  raft.receive(recall_reply(2, asked.round, 4, {4, 2}));
  drain(raft);
  raft.receive(append(2, 4, 0, 0, {4}));
  CHECK(!drain(raft).messages.back().granted);
}

TEST_CASE("raft: a follower that was wiped is repaired by the leader in office") {
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  for (int i = 0; i < 10; ++i) REQUIRE(group.members[leader].propose({7}));
  group.settle();
  const auto wiped = (leader + 1) % 3, other = (leader + 2) % 3;
  const auto last = group.members[leader].last_index();
  wipe(group, wiped);
  group.run(kT);
  CHECK(group.leader() == leader);
  CHECK(group.members[wiped].whole());
  CHECK(group.members[wiped].last_index() == last);
  // The third one may go now: the two make a majority.
  group.isolate(other);
  REQUIRE(group.members[leader].propose({8}));
  group.run(kT);
  CHECK(group.members[leader].commit_index() == last + 1);
}

TEST_CASE("raft: a leader that was wiped is repaired by the next one") {
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  REQUIRE(group.members[leader].propose({7}));
  group.settle();
  const auto last = group.members[leader].last_index();
  wipe(group, leader);
  group.run(10 * kT);
  REQUIRE(group.leader().has_value());
  CHECK(group.members[leader].whole());
  CHECK(group.members[leader].log()[last - 1].data == Bytes{7});
}

// Goal: with the others out of reach nobody can say what was promised, so nothing is.
TEST_CASE("raft: a wiped member waits for every other one") {
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  wipe(group, (leader + 1) % 3);
  group.isolate((leader + 2) % 3);
  group.run(10 * kT);
  CHECK(group.members[(leader + 1) % 3].hard_state().lost);
  CHECK(!group.leader().has_value());  // one of three
  group.heal();
  group.run(10 * kT);
  CHECK(group.leader().has_value());
  CHECK(group.members[(leader + 1) % 3].whole());
}

TEST_CASE("raft: a group without a single log stays as it is, and each knows it") {
  RaftGroup group(3);
  for (std::uint32_t i = 0; i < 3; ++i) wipe(group, i);
  group.run(10 * kT);
  for (const Raft& raft : group.members) {
    CHECK(raft.hard_state().lost);
    CHECK(raft.recalled().answers == 2);
    CHECK(raft.recalled().whole == 0);
    CHECK(raft.recalled().lost == 2);
  }
}

// Goal: who began last does not wait for the answer of one that has ended since. Method: the others
// ask, and answer nothing.
TEST_CASE("raft: a member without a log knows that who asks has none either") {
  Raft raft(config(0, 3), lost(), {});
  CHECK(raft.recalled().lost == 0);
  for (const std::uint32_t from : {1u, 2u}) {
    RaftMessage ask{RaftKind::kRecall, from, 0, /*term=*/0};
    ask.round = 1;
    raft.receive(ask);
    CHECK(raft.recalled().lost == from);
    CHECK(raft.recalled().answers == 0);
  }
  CHECK(raft.hard_state().lost);  // no answer, no repair
}

// Goal: a log that lost acknowledged entries without knowing it (an old copy put back) does not
// hold the group up. Method: the follower restarts with a shorter log.
TEST_CASE("raft: a follower that lacks what it acknowledged is sent it again") {
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  for (int i = 0; i < 10; ++i) REQUIRE(group.members[leader].propose({7}));
  group.settle();
  const auto back = (leader + 1) % 3;
  const auto log = group.members[back].log();
  group.members[back] = Raft(config(back, 3), group.members[back].hard_state(),
                             std::vector<RaftEntry>(log.begin(), log.begin() + 2));
  group.run(kT);
  CHECK(group.leader() == leader);
  CHECK(group.members[back].last_index() == log.size());
}

// Goal: being refused is no contact. Method: a peer that refuses the same append for ever.
TEST_CASE("raft: a leader that everybody refuses for ever does not lead on") {
  Raft raft = leader_of(3, log_of({1, 1, 1}), 1);
  const auto now = 1000 + 2 * kT;
  for (std::uint64_t t = now; t < now + 3 * kT; t += 10) {
    raft.tick(t);
    drain(raft);
    for (std::uint32_t i = 1; i < 3; ++i) {
      auto m = reply(RaftKind::kAppendReply, i, raft.term(), false, t);
      m.last_index = 77;
      raft.receive(m);
    }
  }
  CHECK(raft.role() != RaftRole::kLeader);
}

// ---- Snapshots --------------------------------------------------------------------------------

TEST_CASE("raft: a snapshot takes the place of the log, and the member goes on from it") {
  Raft raft(config(0, 1), {}, {});
  raft.tick(1);
  drain(raft);
  for (int i = 0; i < 5; ++i) REQUIRE(raft.propose({1, 2, 3}));
  CHECK(drain(raft).committed.size() == 5);
  CHECK(raft.log_bytes() == 15);
  raft.compact({9});
  REQUIRE(raft.has_ready());
  const Ready ready = raft.take_ready();
  raft.persisted();
  REQUIRE(ready.snapshot.has_value());
  CHECK(ready.snapshot->index == 6);
  CHECK(!ready.restore);
  CHECK(raft.log().empty());
  CHECK(raft.log_bytes() == 0);
  CHECK(raft.last_index() == 6);

  Raft again(config(0, 1), raft.hard_state(), {}, *ready.snapshot);
  again.tick(1);
  const Out out = drain(again);
  CHECK(again.role() == RaftRole::kLeader);
  REQUIRE(out.committed.size() == 1);  // its own first entry: nothing is applied twice
  CHECK(out.committed[0].index == 7);
}

TEST_CASE("raft: a follower that lacks what the log no longer has is sent the snapshot in pieces") {
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  const auto behind = (leader + 1) % 3;
  group.isolate(behind);
  for (int i = 0; i < 20; ++i) REQUIRE(group.members[leader].propose({7}));
  group.settle();
  const Bytes state(1'000'000, 42);
  group.members[leader].compact(state);
  group.settle();
  REQUIRE(group.members[leader].log().empty());
  const auto last = group.members[leader].last_index();
  REQUIRE(group.members[leader].propose({8}));
  group.heal();
  group.run(10 * kT);
  REQUIRE(group.members[behind].snapshot().data);
  CHECK(*group.members[behind].snapshot().data == state);
  CHECK(group.members[behind].snapshot().index >= last);
  CHECK(group.members[behind].last_index() == group.members[*group.leader()].last_index());
}

// Goal: pieces that come twice, late, or of another snapshot make no state.
TEST_CASE("raft: a snapshot is whole or it is not there") {
  Raft raft(config(0, 3), {3, {}}, {});
  raft.tick(1);
  const auto piece = [](std::uint64_t index, std::uint64_t total, std::uint64_t from, Bytes data) {
    RaftMessage m{RaftKind::kSnapshot, 1, 0, 3};
    m.last_index = index;
    m.last_term = 2;
    m.commit = total;
    m.match = from;
    m.entries.push_back({index, 2, std::move(data)});
    return m;
  };
  raft.receive(piece(9, 6, 0, {1, 2}));
  raft.receive(piece(9, 6, 0, {1, 2}));
  raft.receive(piece(9, 6, 4, {5, 6}));
  raft.receive(piece(9, 6, 2, {3, 4, 5, 6, 7}));  // beyond its end
  CHECK(last_of(raft).match == 2);
  raft.receive(piece(10, 6, 2, {3, 4}));
  CHECK(last_of(raft).match == 0);
  raft.receive(piece(10, 4, 0, {1, 2}));
  raft.receive(piece(10, 4, 2, {3, 4}));
  REQUIRE(raft.has_ready());
  const Ready ready = raft.take_ready();
  CHECK(ready.restore);
  CHECK(*ready.snapshot->data == Bytes{1, 2, 3, 4});
  CHECK(ready.messages.back().kind == RaftKind::kAppendReply);
  CHECK(ready.messages.back().match == 10);
  CHECK(raft.commit_index() == 10);
  raft.persisted();
  raft.receive(piece(9, 6, 0, {1, 2}));  // an older one says only what is here already
  CHECK(last_of(raft).match == 9);
  CHECK(raft.snapshot().index == 10);
}

}  // namespace starling::elastic
