#pragma once
// What a leader goes by, without a leader: a group, the roster of its lives, and the progress of its
// epoch. Worker n is called "n" and has nonce n.

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "elastic/membership/epoch_progress.h"
#include "elastic/membership/group.h"
#include "elastic/membership/leader_config.h"
#include "elastic/membership/roster.h"

namespace starling::elastic {

struct KnownGroup {
  static constexpr std::uint64_t kLeaseMs = 1000;

  KnownGroup() {
    config.micro_batches = 6;
    config.steps = 100;
    config.segments = 3;
    config.elastic.lease_ms = config.report_deadline_ms = kLeaseMs;
    group.apply(JobStarted{});
  }

  static Incarnation who(std::uint64_t n) { return {n, Nonce(n)}; }
  void at(std::uint64_t now_ms) { roster.look(now_ms); }

  void join(std::uint64_t n, WorkerRole role = WorkerRole::kBoth) {
    Joined joined;
    joined.join.role = role;
    joined.join.who = {0, Nonce(n)};
    joined.join.name = std::to_string(n);
    REQUIRE(group.apply(joined));
    roster.joined(who(n));
  }
  // Holders by segment, as ranks.
  Plan plan(EpochId id, PlanKind kind, const std::vector<std::uint64_t>& members,
            std::vector<std::vector<Rank>> holders) const {
    Plan p;
    p.id = id;
    p.kind = kind;
    if (group.plan()) p.predecessor = group.plan()->id;
    for (const std::uint64_t n : members) p.members.push_back(roster.member_of(who(n)));
    p.holders = std::move(holders);
    return p;
  }
  void follow(const Plan& p) {
    REQUIRE(group.apply(p));
    roster.follow(p);
    progress.follow(p);
    progress.begins(roster.now_ms());
  }
  void say(std::uint64_t n, const Heartbeat& beat) {
    roster.heard(who(n));
    roster.works(who(n), beat);
    if (beat.version == kNoVersion) return;
    if (beat.entered == group.plan()->id) progress.entered_at(beat.version);
    if (roster.reached(who(n), beat.version)) progress.seen_at(beat.version, roster.now_ms());
  }
  // All members of the last plan are in it, at this version, and owe nothing.
  void enter(Version version) {
    for (const Member& m : Plan(*group.plan()).members)
      say(m.who.nonce, Heartbeat{group.plan()->id, version, {}});
  }

  LeaderConfig config;
  Group group;
  Roster roster{config, group, 1};
  EpochProgress progress;
};

}  // namespace starling::elastic
