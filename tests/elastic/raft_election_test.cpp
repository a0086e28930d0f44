// Directed schedules of the Raft core: E elections, P pre-vote, Q check-quorum.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "tests/elastic/raft_group.h"

namespace starling::elastic {
namespace {

using namespace raft_test;

// ---- Election ---------------------------------------------------------------------------------

TEST_CASE("raft: a fresh group elects one leader, which begins its term with an empty entry") {
  for (const std::uint32_t size : {1u, 3u, 5u}) {  // E1, E3
    RaftGroup group(size);
    group.run(10 * kT);
    REQUIRE(group.leader());
    for (std::uint32_t i = 0; i < size; ++i) {
      CHECK(group.members[i].leader() == group.leader());
      CHECK(group.members[i].commit_index() == 1);
      REQUIRE(group.applied[i].size() == 1);
      CHECK(group.applied[i][0].data.empty());
    }
    CHECK(group.members[*group.leader()].leads_with_own_entry_committed());
  }
}

TEST_CASE("raft: without a majority nobody leads and no term is used up") {  // E1, P1
  RaftGroup group(5);
  group.cut = [](const RaftMessage& m) { return m.from > 1 || m.to > 1; };
  group.run(20 * kT);
  CHECK(!group.leader());
  CHECK(group.members[0].term() == 0);
}

TEST_CASE("raft: a single member leads only once its own vote is durable") {  // E2, C9
  Raft raft(config(0, 1), {}, {});
  raft.tick(5);
  CHECK(raft.role() == RaftRole::kCandidate);
  const Ready vote = raft.take_ready();
  CHECK(vote.hard_state == HardState{1, 0});
  CHECK(raft.role() == RaftRole::kCandidate);
  raft.persisted();
  CHECK(raft.role() == RaftRole::kLeader);
  REQUIRE(raft.propose({1}));
  const Ready entries = raft.take_ready();
  CHECK(entries.append.size() == 2);
  CHECK(entries.committed.empty());
  CHECK(raft.commit_index() == 0);
  CHECK(!raft.leads_with_own_entry_committed());
  raft.persisted();
  CHECK(raft.commit_index() == 2);
  CHECK(!raft.leads_with_own_entry_committed());  // committed, not yet handed out
  CHECK(raft.take_ready().committed.size() == 2);
  CHECK(raft.leads_with_own_entry_committed());
}

TEST_CASE("raft: a vote goes to whoever's log is at least as good, and to one only") {
  struct Case {
    std::string name;
    std::vector<std::uint64_t> own;
    std::uint64_t index, term;
    bool granted;
  };
  const Case cases[] = {
      {"E6 equal logs", {1, 2}, 2, 2, true},
      {"E5 higher last term, shorter", {1, 1, 1}, 1, 2, true},
      {"E5 lower last term, longer", {1, 2}, 3, 1, false},
      {"E5 equal last term, shorter", {1, 1}, 1, 1, false},
      {"equal last term, longer", {1, 1}, 3, 1, true},
      {"empty log asks", {1}, 0, 0, false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    for (const auto kind : {RaftKind::kPreVote, RaftKind::kVote}) {
      Raft raft(config(0, 3), {2, {}}, log_of(c.own));
      raft.tick(1);
      raft.receive(request(kind, 1, 3, c.index, c.term));
      CHECK(last_of(raft).granted == c.granted);
      CHECK(raft.term() == (kind == RaftKind::kVote ? 3 : 2));
    }
  }
  Raft raft(config(0, 3), {}, {});  // E7, E8
  raft.tick(1);
  raft.receive(request(RaftKind::kVote, 1, 1, 0, 0));
  const Ready ready = raft.take_ready();
  CHECK(ready.hard_state == HardState{1, 1});  // saved in the Ready that holds the grant
  CHECK(ready.messages.at(0).granted);
  raft.persisted();
  raft.receive(request(RaftKind::kVote, 2, 1, 0, 0));
  CHECK(!last_of(raft).granted);
  raft.receive(request(RaftKind::kVote, 1, 1, 0, 0));
  CHECK(last_of(raft).granted);
  Raft restarted(config(0, 3), *ready.hard_state, {});
  restarted.tick(1);
  restarted.receive(request(RaftKind::kVote, 2, 1, 0, 0));
  CHECK(!last_of(restarted).granted);
}

TEST_CASE("raft: a candidate that meets its term's leader follows and keeps its vote") {  // E9, P8
  for (const bool candidate : {false, true}) {
    Raft raft(config(0, 3), {1, {}}, {});
    raft.tick(1);
    raft.tick(1 + 2 * kT);
    const auto asked = last_of(raft);
    if (candidate) raft.receive(reply(RaftKind::kPreVoteReply, 1, 2, true, asked.round));
    drain(raft);
    REQUIRE(raft.role() == (candidate ? RaftRole::kCandidate : RaftRole::kPreCandidate));
    const auto hard = raft.hard_state();
    raft.receive(append(2, raft.term(), 0, 0, {}));
    CHECK(raft.role() == RaftRole::kFollower);
    CHECK(raft.leader() == 2);
    CHECK(raft.hard_state() == hard);
  }
}

TEST_CASE("raft: votes of other terms, doubled ones and ones out of time are not counted") {
  Raft raft(config(0, 5), {1, {}}, {});  // E12, P5
  raft.tick(1);
  raft.tick(1 + 2 * kT);
  const auto asked = last_of(raft);
  raft.receive(reply(RaftKind::kPreVoteReply, 1, 2, true, asked.round - 1));
  raft.receive(reply(RaftKind::kPreVoteReply, 2, 2, true, asked.round - 1));
  raft.receive(reply(RaftKind::kPreVoteReply, 1, 2, true, asked.round));
  raft.receive(reply(RaftKind::kPreVoteReply, 1, 2, true, asked.round));
  CHECK(raft.role() == RaftRole::kPreCandidate);
  raft.receive(reply(RaftKind::kPreVoteReply, 2, 2, true, asked.round));
  CHECK(raft.role() == RaftRole::kCandidate);
  drain(raft);
  raft.receive(reply(RaftKind::kVoteReply, 1, 1, true, asked.round));
  raft.receive(reply(RaftKind::kVoteReply, 3, 1, true, asked.round));
  raft.receive(reply(RaftKind::kVoteReply, 1, 2, true, asked.round));
  raft.receive(reply(RaftKind::kVoteReply, 1, 2, true, asked.round));
  raft.receive(reply(RaftKind::kVoteReply, 9, 2, true, asked.round));
  CHECK(raft.role() == RaftRole::kCandidate);
  raft.receive(reply(RaftKind::kVoteReply, 4, 2, true, asked.round));
  CHECK(raft.role() == RaftRole::kLeader);
  raft.receive(reply(RaftKind::kVoteReply, 3, 2, true, asked.round));  // E13
  CHECK(raft.role() == RaftRole::kLeader);
}

TEST_CASE("raft: a leader steps down for a later term and answers by the logs") {  // E10
  for (const bool better : {false, true}) {
    Raft raft = leader_of(3, log_of({1, 1}), 1);
    drain(raft);
    raft.receive(request(RaftKind::kVote, 1, 3, better ? 4 : 2, better ? 2 : 1));
    CHECK(raft.role() == RaftRole::kFollower);
    CHECK(raft.term() == 3);
    CHECK(last_of(raft).granted == better);
  }
}

TEST_CASE("raft: messages of an older term change nothing and are told the own term") {  // E11
  for (const auto kind : {RaftKind::kPreVote, RaftKind::kVote, RaftKind::kAppend}) {
    Raft raft(config(0, 3), {5, 2}, log_of({1, 5}));
    raft.tick(1);
    raft.receive(request(kind, 1, 4, 9, 4));
    const Out out = drain(raft);
    REQUIRE(out.messages.size() == 1);
    CHECK(out.messages[0].term == 5);
    CHECK(!out.messages[0].granted);
    CHECK(raft.hard_state() == HardState{5, 2});
    CHECK(terms_of(raft) == std::vector<std::uint64_t>{1, 5});
  }
}

TEST_CASE("raft: timeouts spread over [T, 2T), by member and by try, although seeds are equal") {
  std::uint64_t least = ~0ull, most = 0;  // E14
  std::vector<std::uint64_t> firsts;
  for (std::uint32_t i = 0; i < 5; ++i) {
    Raft raft(config(i, 5), {}, {});
    raft.tick(0);
    firsts.push_back(raft.next_deadline());
    for (std::uint64_t now = 0, tries = 0; tries < 200; ++tries) {
      const auto wait = raft.next_deadline() - now;
      least = std::min(least, wait);
      most = std::max(most, wait);
      now = raft.next_deadline();
      raft.tick(now);
    }
  }
  CHECK(least >= kT);
  CHECK(least < kT + 10);
  CHECK(most < 2 * kT);
  CHECK(most > 2 * kT - 10);
  std::sort(firsts.begin(), firsts.end());
  CHECK(std::unique(firsts.begin(), firsts.end()) - firsts.begin() >= 4);
}

// ---- Pre-vote and check-quorum ------------------------------------------------------------------

TEST_CASE("raft: a member that was cut off comes back without disturbing the term") {  // P1
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  const auto term = group.members[leader].term();
  group.isolate((leader + 1) % 3);
  group.run(20 * kT);
  CHECK(group.members[(leader + 1) % 3].role() == RaftRole::kPreCandidate);
  group.heal();
  group.run(5 * kT);
  CHECK(group.leader() == leader);
  CHECK(group.members[leader].term() == term);
}

TEST_CASE("raft: a follower that hears its leader refuses others, but not the leader itself") {
  Raft raft(config(0, 3), {}, {});  // Q2, P9
  raft.tick(10);
  raft.receive(append(1, 1, 0, 0, {}));
  drain(raft);
  raft.tick(10 + kT - 1);
  const auto deadline = raft.next_deadline();
  raft.receive(request(RaftKind::kPreVote, 2, 2, 5, 1));
  CHECK(!last_of(raft).granted);
  CHECK(raft.next_deadline() == deadline);
  raft.receive(request(RaftKind::kVote, 2, 2, 5, 1));
  CHECK(drain(raft).messages.empty());
  CHECK(raft.term() == 1);
  raft.receive(request(RaftKind::kPreVote, 1, 2, 5, 1));
  CHECK(last_of(raft).granted);
  raft.tick(10 + kT);
  raft.receive(request(RaftKind::kPreVote, 2, 2, 5, 1));
  const auto granted = last_of(raft);
  CHECK(granted.granted);
  CHECK(granted.term == 2);  // the asked term
  CHECK(raft.term() == 1);
}

TEST_CASE("raft: a leader without its majority steps down in one timeout, with one it stays") {
  for (const bool alone : {true, false}) {  // Q1, Q5
    RaftGroup group(3);
    group.run(5 * kT);
    const auto leader = *group.leader();
    const auto other = (leader + 1) % 3;
    if (alone) group.isolate(leader);
    if (!alone) group.isolate(other);
    group.run(kT + 10);
    CHECK((group.members[leader].role() == RaftRole::kLeader) == !alone);
    if (alone) CHECK(!group.members[leader].propose({1}));
  }
}

TEST_CASE("raft: a leader that sends but does not hear is replaced, and the reverse") {  // Q5
  for (const bool deaf : {true, false}) {
    RaftGroup group(3);
    group.run(5 * kT);
    const auto leader = *group.leader();
    group.cut = [=](const RaftMessage& m) { return deaf ? m.to == leader : m.from == leader; };
    group.run(10 * kT);
    REQUIRE(group.leader());
    CHECK(*group.leader() != leader);
    CHECK(group.members[leader].role() != RaftRole::kLeader);
  }
}

TEST_CASE("raft: a member stuck in a later term is freed by the leader's append") {  // Q3
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  const auto stuck = (leader + 1) % 3;
  group.members[stuck] = Raft(config(stuck, 3), HardState{50, stuck}, group.members[stuck].log());
  group.applied[stuck].clear();
  group.run(10 * kT);
  REQUIRE(group.leader());
  CHECK(group.members[*group.leader()].term() > 50);
  CHECK(group.members[stuck].leader() == group.leader());
}

TEST_CASE("raft: a partial partition keeps one stable leader that commits") {  // Q4
  RaftGroup group(5);
  group.run(5 * kT);
  const auto leader = *group.leader();
  const auto place = [&](std::uint32_t i) { return (i + 5 - leader) % 5; };  // leader is 0
  group.cut = [&](const RaftMessage& m) {
    const auto a = std::min(place(m.from), place(m.to));
    const auto b = std::max(place(m.from), place(m.to));
    return !(b <= 2 || (a == 1 && b == 3) || (a == 2 && b == 4));
  };
  const auto term = group.members[leader].term();
  for (int k = 0; k < 50; ++k) {
    group.run(kT);
    REQUIRE(group.members[leader].role() == RaftRole::kLeader);
    REQUIRE(group.members[leader].propose({1}));
  }
  group.run(kT);
  CHECK(group.members[leader].term() == term);
  CHECK(group.members[leader].commit_index() == 51);
}

TEST_CASE("raft: a flapping link moves leadership at most once") {  // Q8
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  const auto term = group.members[leader].term();
  bool down = false;
  group.cut = [&](const RaftMessage& m) {
    return down && m.from + m.to == leader + (leader + 1) % 3 && m.from != m.to;
  };
  for (int k = 0; k < 100; ++k) {
    down = !down;
    group.run(kT / 2);
  }
  REQUIRE(group.leader());
  CHECK(group.members[*group.leader()].term() <= term + 1);
}

// ---- Patience ---------------------------------------------------------------------------------

// A follower of member 1 in term 1, heard at 1 ms; words are due every 30 ms.
struct Follower {
  explicit Follower(RaftBug bug = RaftBug::kNone) : raft(config(0, 3, bug), {1, {}}, {}) {
    raft.tick(1);
    hear(1, 1, 1);
  }
  void hear(std::uint64_t now, std::uint32_t from, std::uint64_t term) {
    raft.tick(now);
    raft.receive(append(from, term, 0, 0, {}));
    drain(raft);
  }
  Raft raft;
};

TEST_CASE("raft: a follower is as patient as its leader is late, for a while") {
  Follower late;
  CHECK(late.raft.patience_ms() == kT);
  late.hear(91, 1, 1);  // 60 ms late
  CHECK(late.raft.patience_ms() == 240);
  late.raft.tick(91 + 239);
  CHECK(late.raft.role() == RaftRole::kFollower);
  for (std::uint64_t now = 91 + 239; now < 30000; now += 30) late.hear(now, 1, 1);
  CHECK(late.raft.patience_ms() == kT);  // it is in time again
  Follower impatient(RaftBug::kImpatient);
  impatient.hear(91, 1, 1);
  impatient.raft.tick(91 + 239);
  CHECK(impatient.raft.role() == RaftRole::kPreCandidate);
}

TEST_CASE("raft: a leader that speaks again after it was given up was late, unless it was away") {
  for (const bool away : {false, true}) {
    Follower follower;
    follower.raft.tick(1 + 2 * kT);
    REQUIRE(follower.raft.role() == RaftRole::kPreCandidate);
    drain(follower.raft);
    follower.hear(210, 2, 2);  // another leads
    CHECK(follower.raft.patience_ms() == kT);
    const std::uint64_t again = away ? 1 + 10 * kT + 1 : 1 + 220;
    for (std::uint64_t now = 220; now < again; now += 30) follower.hear(now, 2, 2);
    const std::uint64_t before = follower.raft.patience_ms();
    follower.hear(std::max<std::uint64_t>(again, 221), 1, 1);  // of the term before
    CHECK(follower.raft.patience_ms() == (away ? before : 4 * 220));
  }
}

TEST_CASE("raft: answers that come after a try was given up make the next one longer") {
  Raft raft(config(0, 3), {}, {});
  raft.tick(1);
  raft.tick(1 + 2 * kT);
  const auto first = last_of(raft);
  REQUIRE(first.kind == RaftKind::kPreVote);
  raft.tick(1 + 4 * kT);
  const auto second = last_of(raft);
  REQUIRE(second.round == first.round + 1);
  CHECK(raft.patience_ms() == kT);
  raft.tick(2 + 4 * kT);
  raft.receive(reply(RaftKind::kPreVoteReply, 1, 1, true, first.round));
  CHECK(raft.patience_ms() == 4 * (2 * kT + 1));
  CHECK(raft.role() == RaftRole::kPreCandidate);  // it is no vote in the second try
  raft.receive(reply(RaftKind::kPreVoteReply, 1, 1, true, first.round - 100));  // of nobody's try
  CHECK(raft.patience_ms() == 4 * (2 * kT + 1));
}

}  // namespace
}  // namespace starling::elastic
