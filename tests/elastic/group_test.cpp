// The state of the group: what it remembers, and that it can be written down and restored.

#include "elastic/membership/group.h"

#include <doctest/doctest.h>

#include "core/wire/codec.h"

namespace starling::elastic {
namespace {

struct Log {
  Group group;
  EpochId last;

  Incarnation join(std::uint64_t nonce) {
    Joined joined;
    joined.join.who = {0, Nonce(nonce)};
    joined.join.name = "worker-" + std::to_string(nonce);
    CHECK(group.apply(joined));
    return group.find({0, Nonce(nonce)})->join.who;
  }
  Plan plan(PlanKind kind, const std::vector<Incarnation>& members,
            std::vector<EpochId> entered = {}) {
    Plan plan;
    plan.kind = kind;
    plan.predecessor = last;
    plan.id = last = {1, last.counter + 1};
    plan.entered = std::move(entered);
    for (const Incarnation& who : members) plan.members.emplace_back().who = who;
    CHECK(group.apply(plan));
    return plan;
  }
};

}  // namespace

// Goal: what a group keeps follows from who is there. Method: lives that come and go one after the
// other for long, by every way in which a life can be over.
TEST_CASE("group: lives that are over are forgotten, and are told so when they speak") {
  Log log;
  const Incarnation stays = log.join(1);
  log.plan(PlanKind::kFresh, {stays});
  std::vector<Incarnation> gone;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Incarnation planned = log.join(1000 + 4 * i), dead = log.join(1001 + 4 * i),
                      silent = log.join(1002 + 4 * i), leaving = log.join(1003 + 4 * i);
    log.group.apply(Lost{dead, true});
    log.group.apply(LeaveAnnounced{leaving});
    log.plan(PlanKind::kPrepared, {stays, planned});
    log.plan(PlanKind::kForced, {stays}, {log.last});
    for (const auto& who : {planned, dead, silent, leaving}) gone.push_back(who);
    CHECK(log.group.workers().size() < 2 * Group::kPassedOver + Group::kRemembered + 16);
  }
  CHECK(encode_group(log.group.state()).size() < 32 * 1024);
  CHECK(log.group.find(stays));
  CHECK(!log.group.forgotten(stays));
  CHECK(!log.group.forgotten({0, 77}));    // has not joined
  CHECK(!log.group.forgotten({999, 77}));  // no counter that was given out... to anybody yet
  CHECK(log.group.forgotten(gone.front()));
  CHECK(!log.group.find(gone.front()));
  // The newest are still known, so that a new leader can tell of them.
  CHECK(log.group.find(gone.back()));
}

// Goal: R12 asks who was a member of the epoch that reports name, however many plans came after it.
// Method: an epoch runs, then forced plans that nobody enters, for long.
TEST_CASE("group: the epochs that a report may name stay known, and no others") {
  Log log;
  const Incarnation a = log.join(1), b = log.join(2), c = log.join(3);
  const EpochId fresh = log.plan(PlanKind::kFresh, {a, b, c}).id;
  const EpochId ran = log.plan(PlanKind::kForced, {a, b}, {fresh}).id;
  for (int i = 0; i < 100; ++i) log.plan(PlanKind::kForced, {a, b}, {ran});
  CHECK(log.group.was_member(ran, b));
  CHECK(!log.group.was_member(ran, c));
  CHECK(log.group.was_member(fresh, a));
  CHECK(log.group.was_member(log.last, a));
  CHECK(!log.group.was_member({1, 50}, a));  // entered by nobody, and now by nobody any more
  CHECK(log.group.state().epochs.size() <= 4);
  // A prepared plan follows an epoch that all of its members have entered.
  const EpochId before = log.last;
  log.plan(PlanKind::kPrepared, {a, b});
  CHECK(log.group.was_member(before, a));
  CHECK(log.group.was_member(log.last, b));
  CHECK(!log.group.was_member(ran, a));
}

TEST_CASE("group: a checkpoint that was removed does not come back by its doubt") {
  Group group;
  JobStarted job;
  job.checkpoints = {{4, {1, 2}, {3, 4}, "it"}};
  group.apply(job);
  group.apply(Published{{8, {5, 6}, {3, 4}, "it"}, 8});  // 4 goes
  Checkpoint doubted{4, {1, 2}, {3, 4}, "it"};
  doubted.doubted_from = 0;
  group.apply(Published{doubted});
  REQUIRE(group.checkpoints().size() == 1);
  CHECK(group.checkpoints().front().version == 8);
  doubted.version = 8;
  group.apply(Published{doubted});
  REQUIRE(group.checkpoints().size() == 1);
  CHECK(group.checkpoints().front().doubted_from == Version{0});
}

// Goal: a group that was restored goes on as the one that it was made from. Method: at every point
// of a log with all kinds of entries, the state is written, read and restored, and both take the
// rest.
TEST_CASE("group: restored from its state it goes on as before") {
  std::vector<Entry> entries;
  const auto life = [](std::uint64_t nonce) {
    Joined joined;
    joined.join.who = {0, Nonce(nonce)};
    return joined;
  };
  const auto plan = [](PlanKind kind, EpochId id, EpochId predecessor) {
    Plan p;
    p.kind = kind;
    p.id = id;
    p.predecessor = predecessor;
    p.members.emplace_back().who = {1, 11};
    p.holders = {{0}, {0}};
    p.shares = {0};
    p.cause = "test";
    return p;
  };
  JobStarted job;
  job.job_hash = 5;
  job.checkpoints = {{4, {1, 2}, {3, 4}, "it"}};
  entries = {job,
             life(11),
             life(12),
             plan(PlanKind::kFresh, {1, 1}, {}),
             Published{{8, {5, 6}, {3, 4}, "it"}, 4},
             LeaveAnnounced{{2, 12}},
             plan(PlanKind::kPrepared, {1, 2}, {1, 1}),
             Lost{{1, 11}, true},
             Restarted{{1, 2}, 8, "gone"},
             Damaged{8, "flipped"},
             life(13),
             plan(PlanKind::kFresh, {2, 1}, {1, 2}),
             JobEnded{4, "end", {}, 1.5, 9}};
  for (std::size_t at = 0; at <= entries.size(); ++at) {
    CAPTURE(at);
    Group one;
    for (std::size_t i = 0; i < at; ++i) one.apply(entries[i]);
    const Bytes bytes = encode_group(one.state());
    auto state = decode_group(bytes);
    REQUIRE(state);
    Group other;
    other.restore(std::move(state).value());
    CHECK(encode_group(other.state()) == bytes);
    for (std::size_t i = at; i < entries.size(); ++i)
      CHECK(one.apply(entries[i]) == other.apply(entries[i]));
    CHECK(encode_group(other.state()) == encode_group(one.state()));
    CHECK(other.end().has_value());
  }
}

}  // namespace starling::elastic
