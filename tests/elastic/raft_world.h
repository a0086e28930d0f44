#pragma once
// A simulated group of Raft members with disks, network and faults, members that are lost for good and replaced by
// others in new places, and the rules that are checked after each event. One seed is one history.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <set>
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
  std::uint64_t change_count() const { return changes_; }  // committed, of the group's voters
  std::uint64_t hand_over_count() const { return hand_overs_; }
  std::uint64_t history_hash() const { return history_; }

 private:
  enum class What : std::uint8_t {
    kDeliver,
    kTick,
    kSaved,
    kRestart,
    kFault,
    kPropose,
    kChange,
    kAsk,
    kHeal
  };
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
    bool gone = false;  // for good
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
    std::vector<std::uint64_t> contact;  // as leader: newest answered round, by place
    RaftMembers group;                   // of its newest entry that has one
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
  bool may_lose(std::uint32_t i) const;
  bool can_decide(const std::vector<std::uint32_t>& voters,
                  std::optional<std::uint32_t> without) const;
  void change();
  void change_at(std::uint32_t leader);
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
  void check_change(std::uint32_t i);
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
  // The group by the newest of the first `count` committed entries that has one; none: as it began.
  std::optional<RaftMembers> group_at(std::uint64_t count) const;
  // By the newest committed entry that changes the group.
  std::vector<std::uint32_t> voters() const;
  bool changed() const;

  const std::uint64_t seed_;
  const RaftBug bug_;
  std::uint64_t draws_ = 0;
  std::string violation_;
  std::uint64_t events_ = 0;
  std::uint64_t crashes_ = 0;
  std::uint64_t wipes_ = 0;
  std::uint64_t restores_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t hand_overs_ = 0;
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
  std::uint64_t change_percent_ = 0;
  static constexpr std::size_t kPlaces = 12;
  static constexpr std::uint64_t kElection = 100;  // T, ms
  static constexpr std::uint64_t kFaultsUntil = 40 * kElection;
  std::array<std::array<bool, kPlaces>, kPlaces> cut_{};
  std::uint32_t founders_ = 0;
  // The operator's wish: this place is to join, in place of a lost one or as one more.
  std::optional<std::uint32_t> joiner_, replaced_;
  std::uint64_t proposals_ = 0;

  // What everybody has seen; never forgotten.
  std::map<std::uint64_t, std::uint32_t> leader_of_;                          // I1
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> vote_of_;  // I2
  std::set<std::pair<std::uint32_t, std::uint64_t>>
      over_;  // I2: candidacies of lives without a log by now
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::pair<RaftEntry, std::uint64_t>>
      entries_;                              // I4
  std::vector<RaftEntry> committed_;         // I5, I6, I12
  std::vector<std::uint64_t> committed_in_;  // of each, the term of the leader that counted it
  std::vector<std::vector<std::uint32_t>> committed_by_;  // and the voters that it counted
  // I20: pre-grants that may still be sent, by (voter, asker, round).
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, int> pre_grants_;
};

}  // namespace starling::elastic
