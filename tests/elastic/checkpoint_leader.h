#pragma once
// For tests of checkpoints at a leader: one that leads two workers and stores what they write.

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/elastic/leader_rig.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {

inline constexpr Digest kReadData{1, 2};
inline constexpr std::uint64_t kRestartWindow = 2000, kStartTimeout = 30000;  // ms

// Two workers 1 and 2 in an epoch of term 1; 1 owns and holds segments 0 and 1, 2 the others.
struct CheckpointLeader : LeaderRig {
  // `earlier`: checkpoints of a run before, which this one goes on from; oldest first.
  explicit CheckpointLeader(bool stops = false, std::vector<Checkpoint> earlier = {},
                            std::string fingerprint = {})
      : stops_on_mismatch(stops) {
    fingerprint_text = std::move(fingerprint);
    data = kReadData;  // as all members have read them
    elect(1);
    apply(JobStarted{{}, 0, std::move(earlier)});
    for (std::uint64_t nonce : {1, 2}) join(nonce);
    for (std::uint64_t nonce : {1, 2}) report(nonce, kNoVersion);
    commit();
    REQUIRE(group.plan().has_value());
    enter(21);
  }
  void elect(std::uint64_t term) {
    LeaderConfig config;
    config.micro_batches = 6;
    config.steps = 100;
    config.segments = kSegments;
    config.replicas = 0;
    config.wanted_workers = 2;
    config.elastic.lease_ms = config.report_deadline_ms = kLease;
    config.restart_window_ms = kRestartWindow;
    config.elastic.start_timeout_ms = kStartTimeout;
    config.checkpoint.every = 10;
    config.checkpoint.every_seconds = every_seconds;
    config.checkpoint.dir = "/shared";
    config.elastic.digest_every = 20;
    if (stops_on_mismatch) config.elastic.on_mismatch = OnMismatch::kStop;
    lead(config, term);
  }
  void take(const LeaderCommand& command) override {
    if (auto* store = std::get_if<leader_command::Store>(&command)) stores.push_back(*store);
    if (auto* tidy = std::get_if<leader_command::Tidy>(&command)) tidied.push_back(*tidy);
    if (const auto* event = std::get_if<Event>(&command))
      if (const auto* e = std::get_if<event::Warning>(event)) warnings.push_back(e->text);
  }
  // A worker that holds segments of the last plan reports them at this version.
  void report(std::uint64_t nonce, Version version) {
    Report report;
    report.promise = asked();
    report.version = version;
    if (version != kNoVersion) report.entered = group.plan()->id;
    report.copies.assign(kSegments, false);
    if (version != kNoVersion)
      for (SegmentId s = 0; s < kSegments; ++s)
        for (const Rank r : group.plan()->holders[s])
          if (group.plan()->members[r].who.nonce == nonce) report.copies[s] = true;
    say(nonce, report);
  }
  void enter(Version version) {
    Heartbeat beat{group.plan()->id, version, {}};
    beat.data = data;
    for (const Member& m : group.plan()->members) say(m.who.nonce, beat);
  }
  template <class T>
  bool sent_to(std::uint64_t nonce) const {
    return std::any_of(sent.begin(), sent.end(), [&](const leader_command::Send& send) {
      return send.to.nonce == nonce && std::holds_alternative<T>(send.body);
    });
  }

  std::string refusal_of(std::uint64_t nonce) const {  // empty: none
    for (const leader_command::Send& send : sent)
      if (const auto* refused = std::get_if<Refused>(&send.body))
        if (send.to.nonce == nonce) return refused->reason;
    return {};
  }

  // The part that one worker owns, with digest 1 for each of its segments.
  ShardWritten part(std::uint64_t nonce, Version version) const {
    ShardWritten written{version, {}, {"shard-" + std::to_string(nonce), 10, {}}, {}};
    written.record.version = version - 1;
    for (SegmentId s = 0; s < kSegments; ++s)
      if (group.plan()->members[group.plan()->holders[s].front()].who.nonce == nonce)
        written.shard.segments.push_back({s, {1, 0}});
    return written;
  }
  void vote_digest(Version version, Digest digest) {
    Progress progress;
    progress.epoch = group.plan()->id;
    progress.record.version = version;
    progress.record.digest = digest;
    say(1, progress);
  }
  // From both parts to the committed entry.
  void publish(Version version) {
    for (std::uint64_t nonce : {1, 2}) say(nonce, part(nonce, version));
    if (version % 20 == 0) vote_digest(version, {kSegments, 0});
    REQUIRE(!stores.empty());
    REQUIRE(stores.back().checkpoint.version == version);
    on(leader_event::Stored{version, ""});
    commit();
  }
  std::vector<Version> complete() const {
    std::vector<Version> versions;
    for (const Checkpoint& c : group.checkpoints()) versions.push_back(c.version);
    return versions;
  }

  const bool stops_on_mismatch;
  std::uint64_t every_seconds = 0;  // of leaders that are elected from now on
  std::vector<leader_command::Store> stores;
  std::vector<leader_command::Tidy> tidied;
  std::vector<std::string> warnings;
};

}  // namespace starling::elastic
