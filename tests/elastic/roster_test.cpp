// Whom a leader deals with, by itself: workers n with nonce n, lease 1000 ms, retry 50 ms.

#include "elastic/membership/roster.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

// A group, what its log says, and the roster of a leader that began at 1 ms.
struct RosterRig {
  RosterRig() { group.apply(JobStarted{}); }

  static Incarnation who(std::uint64_t n) { return {n, Nonce(n)}; }

  void join(std::uint64_t n, Digest fingerprint = {7, 7}) {
    Joined joined;
    joined.join.who = {0, Nonce(n)};
    joined.join.name = std::to_string(n);
    joined.join.fingerprint = fingerprint;
    REQUIRE(group.apply(joined));
    roster.joined(who(n));
  }
  void plan(EpochId id, PlanKind kind, const std::vector<std::uint64_t>& members) {
    Plan p;
    p.id = id;
    p.kind = kind;
    if (group.plan()) p.predecessor = group.plan()->id;
    for (const std::uint64_t n : members) p.members.emplace_back().who = who(n);
    REQUIRE(group.apply(p));
    roster.follow(p);
  }
  void at(std::uint64_t now_ms) { roster.look(now_ms); }
  void enter(std::uint64_t n, EpochId epoch) { roster.entered(who(n), epoch); }

  std::string joiners() const {
    std::string nonces;
    for (const Incarnation& w : roster.waiting_joiners()) nonces += std::to_string(w.nonce);
    return nonces;
  }
  std::string running() const {
    std::string nonces;
    for (const Member* m : roster.running_members()) nonces += std::to_string(m->who.nonce);
    return nonces;
  }

  const LeaderConfig config;
  Group group;
  Roster roster{config, group, 1};
};

// ---- Epochs -----------------------------------------------------------------------------------

TEST_CASE("roster: before there is a plan nobody can run an epoch") {
  RosterRig k;
  k.join(1);
  CHECK(k.roster.running_plans().empty());
  CHECK(k.running().empty());
  CHECK(k.joiners() == "1");
  CHECK_FALSE(k.roster.member_now(k.who(1)));
}

TEST_CASE("roster: R11, the epoch before a prepared one may run until all have entered the last") {
  RosterRig k;
  for (const std::uint64_t n : {1, 2, 3}) k.join(n);
  k.plan(kFirst, PlanKind::kFresh, {1, 2});
  CHECK(k.joiners() == "3");
  for (const std::uint64_t n : {1, 2}) k.enter(n, kFirst);
  CHECK(k.roster.all_entered());
  k.plan(kSecond, PlanKind::kPrepared, {2, 3});
  CHECK(k.running() == "231");  // the last plan's members by rank, then who is left behind
  CHECK(k.roster.running_plans().size() == 2);
  CHECK(k.roster.member_now(k.who(1)));
  k.enter(2, kSecond);
  k.enter(2, kSecond);  // said again
  CHECK_FALSE(k.roster.all_entered());
  k.enter(3, kSecond);
  CHECK(k.roster.all_entered());
  CHECK(k.running() == "23");
  CHECK_FALSE(k.roster.member_now(k.who(1)));
  k.roster.check_invariants();
}

TEST_CASE("roster: a forced plan ends the epoch before it at once") {
  RosterRig k;
  for (const std::uint64_t n : {1, 2}) k.join(n);
  k.plan(kFirst, PlanKind::kFresh, {1, 2});
  k.plan(kSecond, PlanKind::kForced, {1});
  CHECK(k.running() == "1");
  CHECK(k.roster.find(k.who(2)) == nullptr);  // a life that is over is forgotten
}

TEST_CASE("roster: only members that are seen in the last plan's epoch say how far it is") {
  RosterRig k;
  for (const std::uint64_t n : {1, 2}) k.join(n);
  k.plan(kFirst, PlanKind::kFresh, {1});
  CHECK_FALSE(k.roster.reached(k.who(1), 5));
  k.enter(1, kFirst);
  CHECK(k.roster.reached(k.who(1), 5));
  CHECK(k.roster.reached(k.who(1), 5));        // again
  CHECK_FALSE(k.roster.reached(k.who(1), 4));  // no life goes back
  CHECK(k.roster.at(k.who(1)).version == 5);
  CHECK_FALSE(k.roster.reached(k.who(2), 5));
}

// ---- Lives ------------------------------------------------------------------------------------

TEST_CASE("roster: who joins waits until a plan has it, it leaves, or it is lost") {
  RosterRig k;
  for (const std::uint64_t n : {1, 2, 3, 4}) k.join(n);
  CHECK(k.joiners() == "1234");
  k.roster.leaves(k.who(1));
  k.roster.lost(k.who(2));
  k.plan(kFirst, PlanKind::kFresh, {3});
  CHECK(k.joiners() == "4");
  k.roster.died(Death{k.who(4), WorkPhase::kCompute, "why"});
  CHECK(k.joiners().empty());
  CHECK(k.roster.certainly_dead(k.who(4)));
  CHECK(k.roster.at(k.who(4)).died_of == "why");
}

TEST_CASE("roster: a report is replaced by one that promises as much or more") {
  RosterRig k;
  k.join(1);
  const auto report = [&](EpochId promise, Version version) {
    Report r;
    r.promise = promise;
    r.version = version;
    k.roster.reported(k.who(1), r);
    return k.roster.at(k.who(1)).report->version;
  };
  CHECK(report({1, 2}, 5) == 5);
  CHECK(report({1, 1}, 6) == 5);
  CHECK(report({1, 2}, 7) == 7);
  CHECK(report({2, 1}, 8) == 8);
}

TEST_CASE("roster: silent is who is not heard for a lease, and for longer than the others") {
  RosterRig k;
  for (const std::uint64_t n : {1, 2, 3}) k.join(n);
  k.plan(kFirst, PlanKind::kFresh, {1, 2, 3});
  k.at(kLease);
  for (const std::uint64_t n : {2, 3}) k.roster.heard(k.who(n));
  CHECK_FALSE(k.roster.silent(k.who(1)));
  // The others were last heard 999 ms after they had joined, so all are late.
  k.at(2 * kLease);
  CHECK_FALSE(k.roster.silent(k.who(1)));
  CHECK(k.roster.tolerance() > kLease);
  for (std::uint64_t now = 2 * kLease; now <= 30 * kLease; now += 100) {
    k.at(now);
    for (const std::uint64_t n : {2, 3}) k.roster.heard(k.who(n));
  }
  CHECK(k.roster.tolerance() == kLease);
  CHECK(k.roster.silent(k.who(1)));
  CHECK_FALSE(k.roster.silent(k.who(2)));
}

TEST_CASE("roster: a new leader counts silence from when it began, or first dealt with a life") {
  RosterRig k;
  for (const std::uint64_t n : {1, 2}) k.join(n);
  k.plan(kFirst, PlanKind::kFresh, {1, 2});
  Roster later(k.config, k.group, 5 * kLease);
  CHECK(later.find(k.who(1)) == nullptr);
  later.look(6 * kLease);
  CHECK_FALSE(later.silent(k.who(1)));
  later.meet(k.who(1));
  later.look(7 * kLease);
  CHECK_FALSE(later.silent(k.who(1)));
  later.look(20 * kLease);
  CHECK(later.silent(k.who(2)));
}

TEST_CASE("roster: a worker moves when anything of what it has to do changes") {
  RosterRig k;
  k.join(1);
  const auto moved_at = [&](std::uint64_t now, const Heartbeat& beat) {
    k.at(now);
    k.roster.works(k.who(1), beat);
    return k.roster.at(k.who(1)).headway.standing().since_ms;
  };
  Heartbeat beat;
  CHECK(moved_at(10, beat) == 10);  // the first one
  CHECK(moved_at(20, beat) == 10);
  beat.share_left = 3;
  CHECK(moved_at(30, beat) == 30);
  beat.progress = 1;
  CHECK(moved_at(40, beat) == 40);
  CHECK(moved_at(50, beat) == 40);
  CHECK(k.roster.warning_is_due(k.who(1), 40));
  CHECK_FALSE(k.roster.warning_is_due(k.who(1), 40));
  CHECK(k.roster.warning_is_due(k.who(1), 41));
}

// ---- What is said to them ---------------------------------------------------------------------

TEST_CASE("roster: a plan is sent again to who was heard since, each time after twice as long") {
  RosterRig k;
  k.join(1);
  k.plan(kFirst, PlanKind::kFresh, {1});
  std::vector<std::uint64_t> sent;
  for (std::uint64_t now = 1; now <= 3000; ++now) {
    k.at(now);
    if (now % 10 == 0) k.roster.heard(k.who(1));
    if (k.roster.plan_is_due(k.who(1), kFirst)) sent.push_back(now);
  }
  CHECK(sent == std::vector<std::uint64_t>{1, 51, 151, 351, 751, 1551, 2551});
  k.at(9000);  // silent since 3000, and it was sent at 2551
  CHECK(k.roster.plan_is_due(k.who(1), kFirst));
  k.at(20000);
  CHECK_FALSE(k.roster.plan_is_due(k.who(1), kFirst));
  k.roster.heard(k.who(1));
  k.enter(1, kFirst);
  CHECK_FALSE(k.roster.plan_is_due(k.who(1), kFirst));
  CHECK(k.roster.plan_is_due(k.who(1), kSecond));
}

// ---- What they have in common -----------------------------------------------------------------

TEST_CASE("roster: most of those who wait and are heard say which bits are the group's") {
  RosterRig k;
  k.join(1, {1, 1});
  CHECK(k.roster.standard()->fingerprint == Digest{1, 1});
  k.join(2, {2, 2});
  CHECK(k.roster.standard()->fingerprint == Digest{1, 1});  // equal parts: who came first
  k.join(3, {2, 2});
  CHECK(k.roster.standard()->fingerprint == Digest{2, 2});
  CHECK(k.joiners() == "23");
  k.at(2 * kLease);
  k.roster.heard(k.who(1));
  CHECK(k.roster.standard()->fingerprint == Digest{1, 1});  // the others fell silent
  k.plan(kFirst, PlanKind::kFresh, {2, 3});
  CHECK(k.roster.standard()->fingerprint == Digest{2, 2});
}

TEST_CASE("roster: the data of more than half of the members are the group's") {
  RosterRig k;
  for (const std::uint64_t n : {1, 2, 3, 4}) k.join(n);
  k.plan(kFirst, PlanKind::kFresh, {1, 2, 3, 4});
  const auto read = [&](std::uint64_t n, Digest data) {
    Heartbeat beat;
    beat.data = data;
    k.roster.works(k.who(n), beat);
    return k.roster.data_of_group();
  };
  CHECK_FALSE(read(1, {1, 1}).has_value());
  CHECK_FALSE(read(2, {2, 2}).has_value());
  CHECK_FALSE(read(3, {2, 2}).has_value());
  CHECK(read(4, {1, 1}) == Digest{1, 1});  // all known, as many of each: of the lowest rank
  CHECK(read(4, {2, 2}) == Digest{2, 2});
  CHECK(k.roster.other_data_is_due(k.who(1)));
  CHECK_FALSE(k.roster.other_data_is_due(k.who(1)));
}

}  // namespace
}  // namespace starling::elastic
