#pragma once
// A simulated group of Raft members with disks, network and faults, and the rules that are checked
// after each event. One seed is one history.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "elastic/raft/raft.h"

namespace starling::elastic {

class RaftWorld {
 public:
  RaftWorld(std::uint64_t seed, RaftBug bug);

  // Faults for a while, then none; ends at the first violation.
  void run();

  const std::string& violation() const { return violation_; }  // empty: none
  std::uint64_t events() const { return events_; }
  std::uint64_t committed_count() const { return committed_.size(); }
  std::uint64_t leader_count() const { return leader_of_.size(); }
  std::uint64_t crash_count() const { return crashes_; }
  std::uint64_t wipe_count() const { return wipes_; }
  std::uint64_t restore_count() const { return restores_; }
  std::uint64_t history_hash() const { return history_; }

 private:
  enum class What : std::uint8_t { kDeliver, kTick, kSaved, kRestart, kFault, kPropose, kHeal };
  struct Event {
    std::uint64_t at = 0;
    std::uint64_t order = 0;
    What what = What::kTick;
    std::uint32_t member = 0;
    std::uint64_t life = 0;  // of the member: events of an earlier life are void
    RaftMessage message;
    bool operator>(const Event& o) const { return std::tie(at, order) > std::tie(o.at, o.order); }
  };
  // What would survive a crash now.
  struct Disk {
    HardState hard;
    RaftSnapshot snapshot;
    std::vector<RaftEntry> log;  // from index 1: what the snapshot covers stays here for the checks
  };
  struct Member {
    std::optional<Raft> raft;
    Disk disk;
    std::optional<Ready> saving;
    std::uint64_t life = 0;
    std::uint64_t paused_until = 0;
    std::uint64_t tick_at = 0;  // last scheduled
    std::uint64_t clock_offset = 0;
    std::uint64_t clock_percent = 100;
    std::uint64_t disk_ms = 1;
    // As last seen, for the checks.
    RaftRole role = RaftRole::kFollower;
    HardState hard;
    std::uint64_t commit = 0;
    std::uint64_t applied = 0;
    std::vector<RaftEntry> log;  // from index 1
    bool was_lost = false;
    std::uint64_t spent = 0;  // term of which the vote counts as given after the log was lost
    std::pair<std::uint64_t, std::uint64_t> acked;                 // (term, match) promised
    std::optional<std::pair<std::uint32_t, std::uint64_t>> heard;  // leader of `hard.term`, when
    std::vector<std::uint64_t> contact;  // as leader: newest answered round
  };

  std::uint64_t random(std::uint64_t n) { return mix64(seed_, draws_++) % n; }
  bool chance(std::uint64_t percent) { return random(100) < percent; }
  std::uint64_t clock_of(const Member& m) const {
    return m.clock_offset + now_ * m.clock_percent / 100;
  }
  void fail(const std::string& rule, std::uint32_t member);
  void push(std::uint64_t at, What what, std::uint32_t member, RaftMessage message = {});

  void run_until(std::uint64_t end);
  void handle(const Event& event);
  void start(std::uint32_t i);
  void crash(std::uint32_t i);
  void wipe(std::uint32_t i);
  bool may_wipe(std::uint32_t i) const;
  void fault();
  void partition();
  void heal();
  void propose();
  void tick(std::uint32_t i);
  void deliver(std::uint32_t i, const RaftMessage& m);
  void pump(std::uint32_t i);
  void saved(std::uint32_t i);
  void send(std::uint32_t i, const RaftMessage& m);
  void store(std::uint32_t i, const Ready& ready, std::size_t parts);

  void check_member(std::uint32_t i, const RaftMessage* delivered);
  void check_vote(std::uint32_t i, std::uint64_t term, std::optional<std::uint32_t> vote);
  void check_log(std::uint32_t i);
  void check_leader(std::uint32_t i);
  void check_commit(std::uint32_t i, const RaftMessage* delivered);
  void check_send(std::uint32_t i, const RaftMessage& m);
  void check_durable_quorum(std::uint64_t from_index);
  void check_applied(std::uint32_t i, const std::vector<RaftEntry>& committed);
  void check_contact(std::uint32_t i);
  void check_agreement(std::size_t committed);
  Bytes state_at(std::uint64_t index) const;
  const RaftEntry& entry_of(const Raft& raft, std::uint64_t index) const;
  bool raft_holds(const Raft& raft, const RaftEntry& e) const;
  bool must_refuse(std::uint32_t i, const RaftMessage& m) const;
  std::uint32_t quorum() const { return static_cast<std::uint32_t>(members_.size()) / 2 + 1; }

  const std::uint64_t seed_;
  const RaftBug bug_;
  std::uint64_t draws_ = 0;
  std::string violation_;
  std::uint64_t events_ = 0;
  std::uint64_t crashes_ = 0;
  std::uint64_t wipes_ = 0;
  std::uint64_t restores_ = 0;
  std::uint64_t history_ = 0;

  std::uint64_t now_ = 0;
  std::uint64_t order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::vector<Member> members_;
  RaftConfig config_;

  // This schedule's faults.
  bool calm_ = false;
  std::uint64_t loss_percent_ = 0;
  std::uint64_t double_percent_ = 0;
  std::uint64_t delay_ms_ = 0;
  std::uint64_t crash_percent_ = 0;
  std::uint64_t partition_percent_ = 0;
  std::uint64_t pause_percent_ = 0;
  std::uint64_t wipe_percent_ = 0;     // of the crashes
  std::uint64_t compact_percent_ = 0;  // of the batches that were applied
  std::array<std::array<bool, 5>, 5> cut_{};
  std::uint64_t proposals_ = 0;

  // What everybody has seen; never forgotten.
  std::map<std::uint64_t, std::uint32_t> leader_of_;                          // I1
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> vote_of_;  // I2
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::pair<Bytes, std::uint64_t>>
      entries_;                              // I4
  std::vector<RaftEntry> committed_;         // I5, I6, I12
  std::vector<std::uint64_t> committed_in_;  // of each, the term of the leader that counted it
  // I20: pre-grants that may still be sent, by (voter, asker, round).
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, int> pre_grants_;
};

}  // namespace starling::elastic
