#pragma once
// For tests of a leader's decisions about epochs: one that leads three workers.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/elastic/leader_rig.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {

// A leader in term 1, its log, and workers 1, 2, 3 who hold everything.
struct OneLeader : LeaderRig {
  explicit OneLeader(Bugs b = {}, std::uint32_t r = 2) : LeaderRig(b), bugs(b), replicas(r) {
    elect(1);
  }

  void elect(std::uint64_t term) {
    LeaderConfig config;
    config.micro_batches = 6;
    config.steps = 100;
    config.segments = kSegments;
    config.wanted_workers = 3;
    config.replicas = replicas;
    config.elastic.lease_ms = config.report_deadline_ms = kLease;
    config.bugs = bugs;
    config.elastic.slowest = slowest;
    lead(config, term);
  }
  // The first epoch runs, all are seen in it at this version.
  void begin(Version version) {
    apply(JobStarted{});
    for (std::uint64_t nonce : {1, 2, 3}) join(nonce);
    for (std::uint64_t nonce : {1, 2, 3}) report(nonce, asked(), {}, kNoVersion);
    commit();
    REQUIRE(group.plan().has_value());
    for (std::uint64_t nonce : {1, 2, 3}) say(nonce, Heartbeat{group.plan()->id, version, {}});
    sent.clear();
  }
  void report(std::uint64_t nonce, EpochId promise, EpochId entered, Version version,
              std::vector<Incarnation> broken = {}, EpochId may_have_begun = {},
              LinkFault fault = LinkFault::kEnded) {
    Report report;
    report.broken = std::move(broken);
    report.fault = fault;
    report.may_have_begun = may_have_begun;
    report.promise = promise;
    report.entered = entered;
    report.version = version;
    report.parameters_complete = version != kNoVersion;
    report.copies.assign(kSegments, version != kNoVersion);
    say(nonce, report);
  }
  // Announced, and the plan that follows it after the window of leaves.
  void leave(std::uint64_t nonce, std::uint64_t notice_ms) {
    say(nonce, Leave{notice_ms});
    commit();
    pass_time(kLease / 2);
    commit();
  }
  const Plan* proposed() const { return first_proposed<Plan>(); }
  std::size_t plans_sent() const {
    return static_cast<std::size_t>(
        std::count_if(sent.begin(), sent.end(), [](const leader_command::Send& send) {
          return std::holds_alternative<Committed>(send.body);
        }));
  }

  Bugs bugs;
  std::uint32_t replicas;
  std::uint32_t slowest = 0;  // of leaders that are elected from now on
};

// Nonces of its members, by rank: "123".
inline std::string members_of(const Plan& plan) {
  std::string nonces;
  for (const Member& m : plan.members) nonces += std::to_string(m.who.nonce);
  return nonces;
}

}  // namespace starling::elastic
