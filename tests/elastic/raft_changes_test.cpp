// Changes of the group: places that are added and taken out, leadership that is handed over.

#include <doctest/doctest.h>

#include "core/wire/limits.h"
#include "tests/elastic/raft_group.h"

namespace starling::elastic {
namespace {

using namespace raft_test;

using Places = std::vector<std::uint32_t>;

RaftEntry change_to(std::uint64_t index, std::uint64_t term, Places voters, std::uint32_t next) {
  return {index, term, {}, RaftMembers{std::move(voters), {}, {}, next}};
}

// A group of `size`, and places after it that wait to be added.
RaftGroup group_with_spares(std::uint32_t size, std::uint32_t spares) {
  RaftGroup group(size);
  for (std::uint32_t i = size; i < size + spares; ++i) {
    group.members.emplace_back(config(i, size), HardState{}, std::vector<RaftEntry>{});
    group.applied.emplace_back();
  }
  group.run(5 * kT);
  REQUIRE(group.leader());
  return group;
}

Raft& leader_in(RaftGroup& group) {
  const auto leader = group.leader();
  REQUIRE(leader);
  return group.members[*leader];
}

// Goal: one that joins is sent the log, then votes; the one that it replaces is taken out then.
TEST_CASE("raft: a member is replaced by one in another place") {
  RaftGroup group = group_with_spares(3, 1);
  const std::uint32_t lost = (*group.leader() + 1) % 3;
  REQUIRE(leader_in(group).propose(Bytes{42}));
  group.run(kT);
  group.isolate(lost);
  CHECK(leader_in(group).propose_change({3, lost}));
  group.run(10 * kT);
  const Raft& leader = leader_in(group);
  CHECK(leader.members().voters.size() == 3);
  CHECK(leader.members() == group.members[3].members());
  CHECK(!leader.members().learner);
  CHECK(group.members[3].votes());
  CHECK(group.applied[3].size() == leader.commit_index());
  CHECK(group.members[3].commit_index() == leader.commit_index());
  for (const std::uint32_t voter : leader.members().voters) CHECK(voter != lost);
  SUBCASE("which is told when it asks again, and moves nobody") {
    const auto term = leader.term();
    group.heal();
    group.run(20 * kT);
    CHECK(group.members[lost].removed());
    CHECK(leader_in(group).term() == term);
  }
  SUBCASE("and the new one makes up the majority when another is lost") {
    group.isolate(*group.leader());
    group.run(20 * kT);
    CHECK(leader_in(group).propose(Bytes{43}));
    const auto index = leader_in(group).last_index();
    group.run(2 * kT);
    CHECK(leader_in(group).commit_index() >= index);
  }
}

// Goal: a place without the log has no vote, however long it takes.
TEST_CASE("raft: an added member does not count before it has the log") {
  RaftGroup group = group_with_spares(3, 1);
  group.isolate(3);
  CHECK(leader_in(group).propose_change({3, {}}));
  group.run(20 * kT);
  CHECK(leader_in(group).members().voters == Places{0, 1, 2});
  CHECK(leader_in(group).members().learner == 3);
  CHECK(leader_in(group).leads_with_own_entry_committed());
  SUBCASE("and is given up for another") {
    group.members.emplace_back(config(4, 3), HardState{}, std::vector<RaftEntry>{});
    group.applied.emplace_back();
    CHECK(!leader_in(group).propose_change({4, {}}));
    CHECK(leader_in(group).propose_change({{}, 3}));
    group.run(5 * kT);
    CHECK(leader_in(group).propose_change({4, {}}));
    group.run(5 * kT);
    CHECK(leader_in(group).members().voters == Places{0, 1, 2, 4});
    const auto again = leader_in(group).propose_change({3, {}});
    CHECK(again.error().text().find("coordinator-3 has been in the group already") == 0);
  }
  SUBCASE("and is given up without the one that it was to replace") {
    CHECK(leader_in(group).propose_change({3, 1}));
    group.run(5 * kT);
    CHECK(leader_in(group).members().leaving == 1);
    CHECK(leader_in(group).propose_change({{}, 3}));
    group.run(20 * kT);
    CHECK(leader_in(group).members().voters == Places{0, 1, 2});
    CHECK(!leader_in(group).members().leaving);
  }
  SUBCASE("and is given up alone") {
    CHECK(leader_in(group).propose_change({{}, 3}));
    group.run(5 * kT);
    CHECK(!leader_in(group).members().learner);
    CHECK(leader_in(group).members().voters == Places{0, 1, 2});
  }
}

// Goal: what a lost leader has sent to a learner alone keeps nobody from leading.
TEST_CASE("raft: a learner that is ahead of all voters that are left leads, and votes then") {
  // Of five, 1 and 4 are lost. 2 has an entry by which 5 votes, of term 2; 4 led in term 3, and its entry reached 5
  // alone. 2 needs four votes of six, and 5 votes for no log without term 3; 0 and 3 need 2, whose log is longer.
  const RaftEntry begun{1, 1, {}, RaftMembers{{0, 1, 2, 3, 4}, 5, {}, 6}};
  const RaftEntry votes = change_to(2, 2, {0, 1, 2, 3, 4, 5}, 6);
  const RaftEntry ahead{2, 3, Bytes{3}, {}};
  RaftGroup group(6);
  group.members.clear();
  for (std::uint32_t i = 0; i < 6; ++i) {
    std::vector<RaftEntry> log{begun};
    if (i == 2) log.push_back(votes);
    if (i == 5) log.push_back(ahead);
    group.members.emplace_back(config(i, 5), HardState{3, {}}, std::move(log));
  }
  group.cut = [](const RaftMessage& m) {
    return m.from == 1 || m.from == 4 || m.to == 1 || m.to == 4;
  };
  group.run(100 * kT);
  REQUIRE(group.leader());
  CHECK(leader_in(group).members().voters == Places{0, 1, 2, 3, 4, 5});
  CHECK(leader_in(group).members_settled());
  for (const std::uint32_t i : {0, 2, 3, 5}) {
    CHECK(group.members[i].commit_index() == leader_in(group).last_index());
    CHECK(group.members[i].log()[1] == ahead);
  }
}

// Goal: voters come first.
TEST_CASE("raft: a learner leaves it to the voters to elect one of them") {
  for (std::uint32_t i = 0; i < 20; ++i) {
    RaftGroup group = group_with_spares(3, 1);
    group.run(i * 7);
    CHECK(leader_in(group).propose_change({3, {}}));
    const auto index = leader_in(group).last_index();
    // The leader is not told that it has the entry, so it stays a learner.
    group.cut = [](const RaftMessage& m) {
      return m.from == 3 && m.kind == RaftKind::kAppendReply && m.granted;
    };
    group.run(kT);
    REQUIRE(group.members[3].last_index() == index);
    group.isolate(*group.leader());
    group.run(10 * kT);
    REQUIRE(group.leader());
    CHECK(*group.leader() != 3);
  }
}

// Goal: the state of the group comes with its members.
TEST_CASE("raft: a member that is added late gets the group with the snapshot") {
  RaftGroup group = group_with_spares(3, 2);
  CHECK(leader_in(group).propose_change({3, {}}));
  group.run(5 * kT);
  for (int i = 0; i < 4; ++i) {
    CHECK(leader_in(group).propose(Bytes{7}));
    group.run(kT);
  }
  for (std::uint32_t i = 0; i < 4; ++i) group.members[i].compact(Bytes{1});
  group.settle();
  REQUIRE(leader_in(group).snapshot().members);
  CHECK(leader_in(group).propose_change({4, {}}));
  group.run(10 * kT);
  CHECK(group.members[4].snapshot().index > 0);
  CHECK(group.members[4].members().voters == Places{0, 1, 2, 3, 4});
  // What a member reads of its disk is the same group.
  const Raft& old = group.members[4];
  const Raft again(config(4, 3), old.hard_state(), old.log(), old.snapshot());
  CHECK(again.members() == old.members());
}

// Goal: leadership goes to a voter with the whole log at once, not after a timeout.
TEST_CASE("raft: a leader hands over") {
  RaftGroup group = group_with_spares(3, 0);
  const auto before = *group.leader();
  const auto term = group.members[before].term();
  group.members[before].hand_over();
  group.run(kT / 2);
  CHECK(*group.leader() != before);
  CHECK(leader_in(group).term() == term + 1);
}

// Goal: a leader that is to leave is taken out by another. Also the only one, which the added one follows.
TEST_CASE("raft: the leader itself is replaced") {
  for (const std::uint32_t size : {1u, 3u}) {
    CAPTURE(size);
    RaftGroup group = group_with_spares(size, 1);
    const auto before = *group.leader();
    CHECK(leader_in(group).propose_change({size, before}));
    group.run(10 * kT);
    CHECK(*group.leader() != before);
    const Places& voters = leader_in(group).members().voters;
    CHECK(voters.size() == size);
    CHECK(std::find(voters.begin(), voters.end(), before) == voters.end());
    group.run(10 * kT);
    CHECK(group.members[before].removed());
  }
}

TEST_CASE("raft: what no group can do is refused, and asking twice is asking once") {
  RaftGroup group = group_with_spares(3, 1);
  Raft& leader = leader_in(group);
  const auto index = leader.last_index();
  const auto error_of = [&](RaftChange change) {
    const auto asked = leader.propose_change(change);
    return asked ? std::string() : asked.error().text();
  };
  CHECK(error_of({limits::kSeats, {}}).find("a group has at most") == 0);
  CHECK(error_of({{}, 9}) == "coordinator-9 is not in the group");
  CHECK(error_of({1, {}}).empty());  // it is there
  CHECK(leader.last_index() == index);
  CHECK(error_of({3, {}}).empty());
  CHECK(error_of({3, {}}).empty());
  CHECK(leader.last_index() == index + 1);
  const std::uint32_t other = (*group.leader() + 1) % 3;
  CHECK(error_of({{}, other}) == "another change is under way");
  for (Raft& member : group.members)
    if (member.role() != RaftRole::kLeader) CHECK(!member.propose_change({3, {}}));
  RaftGroup alone = group_with_spares(1, 0);
  CHECK(leader_in(alone).propose_change({{}, 0}).error().text() ==
        "coordinator-0 is the only coordinator of the group");
}

// Goal: an entry that changed the group and is cut takes its group with it.
TEST_CASE("raft: a change that is cut off is void") {
  Raft raft(config(0, 3), HardState{1, {}}, {{1, 1, Bytes{1}}, change_to(2, 1, {0, 1, 2, 3}, 4)});
  raft.tick(1);
  CHECK(raft.members().voters == Places{0, 1, 2, 3});
  raft.receive(append(1, 2, 1, 1, {2}, 1));
  CHECK(raft.members().voters == Places{0, 1, 2});
  CHECK(raft.members().next == 3);
}

TEST_CASE("raft: a damaged group in a message has no effect") {
  for (const Places& voters : {Places{}, Places{1, 0}, Places{0, 0}, Places{0, 4}}) {
    Raft raft(config(0, 3), HardState{1, {}}, log_of({1}));
    raft.tick(1);
    auto m = append(1, 1, 1, 1, {1}, 2);
    m.entries[0] = change_to(2, 1, voters, 4);
    raft.receive(m);
    CHECK(raft.last_index() == 1);
  }
}

// Goal: a new leader does not know yet what is decided.
TEST_CASE("raft: a new leader changes nothing before an own entry is committed") {
  Raft leader = leader_of(3);
  const auto asked = leader.propose_change({3, {}});
  REQUIRE(!asked);
  CHECK(asked.error().text() == "another change is under way");
  drain(leader);
  leader.receive(ack(1, leader, leader.last_index()));
  CHECK(leader.propose_change({3, {}}));
}

// Goal: in a group that has changed, a member that lost its log stays silent: those that it knows are not those that
// know what it promised. Method: an entry is committed by 1 and 3; 1 loses its log and asks 0 and 2.
TEST_CASE("raft: a member without its log does not vote in a changed group") {
  const auto elect = [](RaftBug bug) {
    const std::vector<RaftEntry> all{{1, 1, Bytes{1}},
                                     change_to(2, 1, {0, 1, 2, 3}, 4),
                                     change_to(3, 1, {1, 2, 3}, 4),
                                     {4, 1, Bytes{2}}};
    const auto upto = [&](std::ptrdiff_t count) {
      return std::vector<RaftEntry>(all.begin(), all.begin() + count);
    };
    RaftGroup group(0);
    group.applied.resize(4);
    HardState lost;
    lost.lost = true;
    group.members.emplace_back(config(0, 3, bug), HardState{1, {}}, upto(2));
    group.members.emplace_back(config(1, 3, bug), lost, upto(0));
    group.members.emplace_back(config(2, 3, bug), HardState{1, {}}, upto(3));
    group.members.emplace_back(config(3, 3, bug), HardState{1, {}}, upto(4));
    group.isolate(3);
    group.run(20 * kT);
    return group.leader();
  };
  CHECK(!elect(RaftBug::kNone));
  CHECK(elect(RaftBug::kRecallsChanged) == 2);  // it lacks what is committed
}

}  // namespace
}  // namespace starling::elastic
