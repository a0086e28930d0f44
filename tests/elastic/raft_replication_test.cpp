// Directed schedules of the Raft core: R replication, C commit, K conflict; hostile input.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "core/wire/limits.h"
#include "tests/elastic/raft_group.h"

namespace starling::elastic {
namespace {

using namespace raft_test;

// ---- Replication --------------------------------------------------------------------------------

TEST_CASE("raft: a proposal is applied once everywhere, and only a leader takes it") {  // R1, R10
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  const auto index = group.members[leader].propose({42});
  REQUIRE(index);
  CHECK(index.value() == 2);
  group.settle();
  for (const auto& applied : group.applied) {
    REQUIRE(applied.size() == 2);
    CHECK(applied[1] == RaftEntry{2, group.members[leader].term(), Bytes{42}});
  }
  const auto refused = group.members[(leader + 1) % 3].propose({1});
  REQUIRE(!refused);
  CHECK(refused.error().code() == Code::kUnavailable);
}

TEST_CASE("raft: appends with gaps are refused, old ones do not shorten the log") {  // R2, R3
  Raft raft(config(0, 3), {}, {});
  raft.tick(1);
  raft.receive(append(1, 1, 5, 1, {1}));
  auto answer = last_of(raft);
  CHECK(!answer.granted);
  CHECK(answer.last_index == 5);
  CHECK(raft.last_index() == 0);
  raft.receive(append(1, 1, 0, 0, {1, 1, 1}));
  answer = last_of(raft);
  CHECK(answer.granted);
  CHECK(answer.match == 3);
  raft.receive(append(1, 1, 0, 0, {1}));
  answer = last_of(raft);
  CHECK(answer.granted);
  CHECK(answer.match == 1);  // what this message verified, not more
  CHECK(raft.last_index() == 3);
}

TEST_CASE("raft: a follower far behind is found in one refusal per term") {  // R4, R12, K6
  std::vector<std::uint64_t> terms, others;
  for (std::uint64_t k = 0; k < 10000; ++k) terms.push_back(1 + 2 * (k / 500));
  for (std::uint64_t k = 0; k < 9000; ++k) others.push_back(k < 100 ? 1 : 2 + 2 * (k / 500));
  RaftGroup group(3, {terms, terms, others}, 60);
  std::uint64_t refusals = 0;
  std::size_t entries_most = 0;
  group.cut = [&](const RaftMessage& m) {
    refusals += m.kind == RaftKind::kAppendReply && !m.granted;
    entries_most = std::max(entries_most, m.entries.size());
    return false;
  };
  group.run(20 * kT);
  REQUIRE(group.leader());
  CHECK(terms_of(group.members[2]) == terms_of(group.members[*group.leader()]));
  CHECK(group.applied[2].size() == 10001);
  CHECK(refusals <= 2 * 21);
  CHECK(entries_most <= config(0, 3).batch_entries_max);
}

TEST_CASE("raft: doubled answers do not multiply the messages") {
  Raft raft = leader_of(3);
  drain(raft);
  for (int k = 0; k < 500; ++k) REQUIRE(raft.propose({1}));
  drain(raft);
  std::size_t sent = 0;
  for (int k = 0; k < 50; ++k) {
    raft.receive(ack(1, raft, 1));
    const Out out = drain(raft);
    sent += static_cast<std::size_t>(
        std::count_if(out.messages.begin(), out.messages.end(),
                      [](const RaftMessage& m) { return !m.entries.empty(); }));
  }
  CHECK(sent <= 1);
}

TEST_CASE("raft: lost entries are sent again after the next heartbeat is answered") {  // R5, R6
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  const auto other = (leader + 1) % 3;
  group.cut = [&](const RaftMessage& m) { return m.to == other && !m.entries.empty(); };
  REQUIRE(group.members[leader].propose({9}));
  group.run(20);
  CHECK(group.members[other].last_index() == 1);
  group.heal();
  group.run(2 * 30 + 10);
  CHECK(group.members[other].commit_index() == 2);
}

TEST_CASE("raft: refusals older than what is matched, and foreign answers, change nothing") {
  Raft raft = leader_of(3);  // R7, R8
  raft.receive(ack(1, raft, 1));
  drain(raft);
  REQUIRE(raft.commit_index() == 1);
  auto stale = ack(1, raft, 0);
  stale.granted = false;
  raft.receive(stale);
  CHECK(drain(raft).messages.empty());
  REQUIRE(raft.propose({1}));
  drain(raft);
  auto old = ack(2, raft, 2);
  old.term -= 1;
  raft.receive(old);
  auto beyond = ack(2, raft, 3);
  raft.receive(beyond);
  auto before = ack(2, raft, 2);
  before.round = 1;  // of no append of this leadership
  raft.receive(before);
  CHECK(raft.commit_index() == 1);
  raft.receive(ack(2, raft, 2));
  CHECK(raft.commit_index() == 2);
}

TEST_CASE("raft: proposals beyond the limits are refused without effect") {  // R9
  auto c = config(0, 1);
  c.uncommitted_max = 3;
  c.entry_bytes_max = 10;
  Raft raft(c, {}, {});
  raft.tick(1);
  raft.take_ready();
  raft.persisted();  // leads; its no-op is not yet saved
  CHECK(raft.propose(Bytes(11)).error().code() == Code::kBadInput);
  CHECK(raft.propose({}).error().code() == Code::kBadInput);
  REQUIRE(raft.propose(Bytes(10)));
  REQUIRE(raft.propose({1}));
  CHECK(raft.propose({1}).error().code() == Code::kUnavailable);
  CHECK(raft.last_index() == 3);
  drain(raft);
  CHECK(raft.propose({1}));
}

// ---- Commit -------------------------------------------------------------------------------------

TEST_CASE("raft: entries of older terms are committed only with one of the own term") {  // C1, C2
  for (const auto bug : {RaftBug::kNone, RaftBug::kCommitOldTerm}) {
    Raft raft = leader_of(3, log_of({1, 2}), 2, bug);
    drain(raft);
    raft.receive(ack(1, raft, 2));
    CHECK(raft.commit_index() == (bug == RaftBug::kNone ? 0 : 2));
    CHECK(!raft.leads_with_own_entry_committed());
    raft.receive(ack(1, raft, 3));
    CHECK(raft.commit_index() == 3);
    CHECK(drain(raft).committed.size() == 3);
    CHECK(raft.leads_with_own_entry_committed());
  }
}

TEST_CASE("raft: a follower commits no more than what the message verified") {  // C3, R13, C5
  Raft raft(config(0, 3), {1, {}}, log_of({1, 1, 1, 1, 1}));
  raft.tick(1);
  raft.receive(append(1, 2, 1, 1, {1, 1}, /*commit=*/5));
  CHECK(raft.commit_index() == 3);
  raft.receive(append(1, 2, 2, 1, {}, /*commit=*/9));
  CHECK(raft.commit_index() == 3);
  raft.receive(append(1, 2, 5, 1, {}, /*commit=*/4));
  CHECK(raft.commit_index() == 4);
  CHECK(drain(raft).committed.size() == 4);
}

TEST_CASE("raft: quorums of every size are majorities") {  // C7
  for (std::uint32_t size = 1; size <= 5; ++size) {
    Raft raft = size == 1 ? Raft(config(0, 1), {}, {}) : leader_of(size);
    if (size == 1) raft.tick(1);
    drain(raft);
    std::uint32_t copies = 1;
    while (raft.commit_index() == 0 && copies < size) raft.receive(ack(copies++, raft, 1));
    CHECK(copies == size / 2 + 1);
  }
}

TEST_CASE("raft: a copy of the leader counts when it is durable, not before") {  // R11, I10
  Raft raft = leader_of(3);
  raft.take_ready();
  raft.receive(ack(1, raft, 1));
  CHECK(raft.commit_index() == 0);
  raft.persisted();
  CHECK(raft.commit_index() == 1);
}

TEST_CASE("raft: what a dead leader committed untold is committed by the next") {  // C6
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  // Entries arrive, the news of their commit does not.
  group.cut = [&](const RaftMessage& m) { return m.from == leader && m.entries.empty(); };
  REQUIRE(group.members[leader].propose({77}));
  group.settle();
  CHECK(group.members[leader].commit_index() == 2);
  group.isolate(leader);
  group.run(10 * kT);
  REQUIRE(*group.leader() != leader);
  const auto& applied = group.applied[*group.leader()];
  REQUIRE(applied.size() == 3);
  CHECK(applied[1].data == Bytes{77});
}

// ---- Conflict -----------------------------------------------------------------------------------

TEST_CASE("raft: logs that differ end equal to the leader's") {  // K1: the paper's figure 3.6
  const std::vector<std::uint64_t> own{1, 1, 1, 4, 4, 5, 5, 6, 6, 6};
  const std::vector<std::vector<std::uint64_t>> others{{1, 1, 1, 4, 4, 5, 5, 6, 6},
                                                       {1, 1, 1, 4},
                                                       {1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6},
                                                       {1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7},
                                                       {1, 1, 1, 4, 4, 4, 4},
                                                       {1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3}};
  for (const auto& other : others) {
    Raft leader = leader_of(3, log_of(own), 7);
    Raft follower(config(1, 3), {8, {}}, log_of(other));
    follower.tick(1);
    for (int k = 0; k < 40; ++k) {
      for (const RaftMessage& m : drain(leader).messages) {
        if (m.to == 1) follower.receive(m);
      }
      for (const RaftMessage& m : drain(follower).messages) leader.receive(m);
    }
    CHECK(follower.log() == leader.log());
    CHECK(leader.commit_index() == 11);
  }
}

TEST_CASE("raft: a conflict with what is committed is not obeyed") {  // K2
  Raft raft(config(0, 3), {1, {}}, {});
  raft.tick(1);
  raft.receive(append(1, 1, 0, 0, {1, 1}, 2));
  drain(raft);
  raft.receive(append(1, 2, 0, 0, {2, 2}, 2));
  CHECK(drain(raft).messages.empty());
  CHECK(terms_of(raft) == std::vector<std::uint64_t>{1, 1});
}

TEST_CASE("raft: a tail that is replaced while it is saved is not acknowledged") {  // K3
  Raft raft(config(0, 3), {}, {});
  raft.tick(1);
  raft.receive(append(1, 1, 0, 0, {1, 1, 1}));
  Ready first = raft.take_ready();
  raft.receive(append(1, 1, 3, 1, {1}));  // acknowledged in the next Ready,
  raft.receive(append(2, 2, 1, 1, {2}));  // unless a later leader cuts it before
  raft.persisted();
  Ready second = raft.take_ready();
  CHECK(second.hard_state == HardState{2, {}});
  REQUIRE(second.append.size() == 1);
  CHECK(second.append[0].index == 2);  // overwrites: duty 2
  for (const RaftMessage& m : second.messages) CHECK(m.term == 2);
  raft.persisted();
  CHECK(terms_of(raft) == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("raft: a leader that was cut off loses what it could not commit") {  // K6
  RaftGroup group(3);
  group.run(5 * kT);
  const auto leader = *group.leader();
  group.isolate(leader);
  for (int k = 0; k < 100; ++k) REQUIRE(group.members[leader].propose({1}));
  group.run(10 * kT);
  CHECK(group.members[leader].last_index() == 101);
  REQUIRE(*group.leader() != leader);
  REQUIRE(group.members[*group.leader()].propose({2}));
  group.settle();
  group.heal();
  group.run(10 * kT);
  CHECK(group.applied[leader] == group.applied[*group.leader()]);
  CHECK(group.members[leader].log() == group.members[*group.leader()].log());
}

// ---- Hostile input ------------------------------------------------------------------------------

TEST_CASE("raft: malformed messages have no effect") {
  const auto good = append(1, 3, 2, 1, {3, 3}, 4);
  const std::vector<std::function<void(RaftMessage&)>> damages{
      [](RaftMessage& m) { m.to = 1; },
      [](RaftMessage& m) { m.from = 0; },
      [](RaftMessage& m) { m.from = limits::kSeats; },
      [](RaftMessage& m) { m.kind = static_cast<RaftKind>(77); },
      [](RaftMessage& m) { m.term = 0; },
      [](RaftMessage& m) { m.term = ~0ull; },
      [](RaftMessage& m) { m.last_index = ~0ull; },
      [](RaftMessage& m) { m.last_term = 4; },
      [](RaftMessage& m) { m.last_term = 0; },
      [](RaftMessage& m) { m.entries[1].index = 9; },
      [](RaftMessage& m) { m.entries[0].index = 0; },
      [](RaftMessage& m) { m.entries[0].term = 0; },
      [](RaftMessage& m) { m.entries[1].term = 2; },
      [](RaftMessage& m) { m.entries[1].term = 4; },
      [](RaftMessage& m) { m.entries[0].data.resize(9 * 1024 * 1024); },
  };
  for (std::size_t k = 0; k < damages.size(); ++k) {
    CAPTURE(k);
    Raft raft(config(0, 3), {2, {}}, log_of({1, 1}));
    raft.tick(1);
    auto bad = good;
    damages[k](bad);
    raft.receive(bad);
    CHECK(!raft.has_ready());
    CHECK(raft.term() == 2);
    raft.receive(good);
    CHECK(raft.commit_index() == 4);
  }
}

// Any field may hold anything: no crash, and what is committed stays.
TEST_CASE("raft: random messages never crash a member nor change what it committed") {
  std::uint64_t draws = 0;
  const auto draw = [&](std::uint64_t n) {
    draws += 0x9e3779b97f4a7c15ull;
    const auto x = (draws ^ (draws >> 31)) * 0xbf58476d1ce4e5b9ull;
    return (x ^ (x >> 29)) % n;
  };
  const auto number = [&] { return draw(20) == 0 ? ~0ull - draw(3) : draw(8); };
  std::uint64_t committed = 0;
  for (int life = 0; life < 200; ++life) {
    Raft raft(config(0, 3), {2, {}}, log_of({1, 1, 2}));
    std::vector<RaftEntry> applied;
    std::uint64_t now = 1;
    for (int k = 0; k < 200; ++k) {
      raft.tick(now += draw(60));
      RaftMessage m{static_cast<RaftKind>(draw(8)), static_cast<std::uint32_t>(draw(4)), 0,
                    number()};
      m.last_index = number();
      m.last_term = number();
      m.commit = number();
      m.granted = draw(2) == 0;
      m.match = number();
      m.round = draw(2) == 0 ? now - draw(50) : number();
      auto index = m.last_index;
      for (auto n = draw(4); n > 0; --n) m.entries.push_back({++index, number(), Bytes(draw(3))});
      raft.receive(m);
      for (RaftEntry& e : drain(raft).committed) applied.push_back(std::move(e));
      REQUIRE(raft.commit_index() <= raft.last_index());
      REQUIRE(applied.size() == raft.commit_index());
      REQUIRE(std::equal(applied.begin(), applied.end(), raft.log().begin()));
    }
    committed += applied.size();
  }
  CHECK(committed > 0);
}

}  // namespace
}  // namespace starling::elastic
