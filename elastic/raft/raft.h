#pragma once
// Raft for a group of coordinators: election with pre-vote and check-quorum, replication, commit,
// snapshots, the return of a member that has lost its log, and members that are replaced. Pure:
// time arrives through tick(), randomness as a seed, storage and network are the caller's.
// Algorithm: Ongaro, "Consensus: Bridging Theory and Practice" (2014), chapter 3; members, one at a
// time, 4; leadership handed over 3.10; snapshots 5; pre-vote 9.6; check-quorum 6.2; recall:
// docs/decisions/016-a-wiped-coordinator-asks.md; places: docs/decisions/068-a-place-is-filled-once.md.
//
// Duties of the caller, in this order, while has_ready() after any call:
//   1. take_ready(). Not again before duty 3.
//   2. Save `hard_state`, `snapshot` and `append`, and sync. A snapshot replaces everything that
//      was saved but the hard state, in one step: `append` is then the whole log after it. Else, if
//      append[0].index is at or below the last saved index, everything saved from there on is void.
//      A failed write or sync ends the process: it is never tried again, since the pages may be
//      clean with the data gone.
//   3. persisted(). Own vote and own copies count from here on. Call it even if there was
//      nothing to save.
//   4. Send `messages`, and none before duty 3: a grant or an acknowledgement is a promise that
//      outlives the process. They may be lost, doubled, reordered.
//   5. If `restore`: put the state that `snapshot` holds in the place of the own one. Then apply
//      `committed`: consecutive entries, each once per life of this object, from the one after the
//      snapshot. compact() may be called then, so that the log stays short.
//   6. Call tick() at next_deadline() at the latest, and before receive() if time has passed.
// tick(), receive() and propose() may be called between duties 1 and 3 (the disk may be slow); what
// they cause is in the next Ready.
//
// Meaning of RaftMessage's fields here:
//   kPreVote       term = asked (own + 1); last_index, last_term = own last entry; round = try
//   kPreVoteReply  term = asked if granted, else own; round as asked
//   kVote          term; last_index, last_term; round = try, which differs from life to life;
//                  granted = the leader has asked for this election
//   kVoteReply     term; granted; round as asked
//   kAppend        term; last_index, last_term = entry before `entries`; commit; round = leader's
//                  clock when sent, ms
//   kAppendReply   term; round as sent; granted: match = last index verified by that append;
//                  refused: last_index = refused `last_index`; match, last_term = an entry at or
//                  below it from which to go on searching (never an acknowledgement)
//   kSnapshot      term; last_index, last_term = entry up to which the state goes; commit = its
//                  bytes; match = offset of the piece that is the data of the one entry, whose
//                  members are the group there; round
//   kSnapshotReply term; last_index as sent; match = bytes that are there; round as sent. Once all
//                  are there, a kAppendReply comes in its place
//   kRecall        round = this life of a member without its log
//   kRecallReply   round as asked; granted: term, and last_term, last_index = own last entry, or
//                  the floor if that is higher; match = entry that changed the group last, 0: none;
//                  not granted: the sender has lost its log too
//   kElect         term; the leader's, to a voter whose log is as long
//   kRemoved       term; to one that asks for votes: a committed entry has taken it out

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/base/result.h"
#include "core/wire/messages.h"
#include "elastic/planted.h"

namespace starling::elastic {

// A LogPosition is how far a log goes; the log with the higher position is the more up to date.
struct LogPosition {
  std::uint64_t term = 0;
  std::uint64_t index = 0;
  auto operator<=>(const LogPosition&) const = default;
};

// HardState is what a member must never forget besides its log. Saved as one.
struct HardState {
  std::uint64_t term = 0;
  std::optional<std::uint32_t> vote;  // in `term`
  // The log was lost, and what was promised with it is not known yet: the member says nothing in
  // elections and acknowledges nothing.
  bool lost = false;
  // After a recall: the lost log went this far at most. A member with less gets no vote, and
  // this member no candidacy. Zeros once the own log reaches the floor.
  LogPosition floor{};
  bool operator==(const HardState&) const = default;
};

// The state after the entry of this index and term, as the caller gave it to compact().
struct RaftSnapshot {
  std::uint64_t index = 0;  // 0: there is none
  std::uint64_t term = 0;
  std::shared_ptr<const Bytes> data;
  std::optional<RaftMembers> members;  // of the group there; none: those that began it
};

// RaftChange is what an operator asks of the group. A place is given out once: a member that was taken out never comes
// back, since a process that still runs under its name could vote beside the new one.
struct RaftChange {
  // A place above all that were ever in the group: it is sent the log, and votes when it has it.
  std::optional<std::uint32_t> add;
  // A member, once the added one votes. The one that is being added: it is given up.
  std::optional<std::uint32_t> remove;
};

// Faults that tests plant; the shipped build has no branch for them (elastic/planted.h).
enum class RaftBug : std::uint8_t {
  kNone = 0,
  kClearVoteOnStepDown,  // forgets the vote when it follows within a term
  kSelfVoteEarly,        // counts its own vote before it is durable
  kSelfAckEarly,         // counts its own copies before they are durable
  kCommitOldTerm,        // commits entries of older terms by counting
  kCommitUnverified,     // follower takes over the leader's commit index
  kMatchFromReject,      // takes the hint of a refusal as an acknowledgement
  kNoStickiness,         // grants pre-votes and votes although its leader lives
  kQuorumTooSmall,       // one less than a majority
  kTruncateAlways,       // cuts the log at each append, not only at a conflict
  kVoteForAnyLog,        // grants without comparing logs
  kNoCheckQuorum,        // leads on without its group
  kWipedVotes,           // takes an empty log for that of a first life
  kNoFloor,              // votes by its own log alone after it was lost
  kImpatient,            // waits no longer than T, however late the others are
  kChangesAtOnce,        // changes the group again before the change before is committed
  kVotesUnread,          // lets an added member vote before it has the log
  kRemovedStands,        // stands without a pre-vote when it hears no leader
  kRecallsChanged,       // repairs a lost log in a group whose members have changed
};

struct RaftConfig {
  std::uint32_t self = 0;
  std::uint32_t size = 1;              // places 0 .. size-1 begin the group; `self` may come later
  std::uint64_t election_ms = 150;     // T: timeouts are drawn from [T, 2T); see patience_ms()
  std::uint64_t heartbeat_ms = 50;     // < T
  std::uint64_t seed = 0;              // differs from member to member, and from life to life
  std::size_t batch_entries_max = 64;  // per append
  std::size_t batch_bytes_max = 256 * 1024;  // per append, but always one entry
  std::size_t entry_bytes_max = 8 * 1024 * 1024;
  std::size_t uncommitted_max = 1024;    // entries; propose() refuses beyond
  std::size_t piece_bytes = 128 * 1024;  // of a snapshot, in one message
  std::size_t snapshot_bytes_max = 64 * 1024 * 1024;
  RaftBug bug = RaftBug::kNone;
};

enum class RaftRole : std::uint8_t { kFollower, kPreCandidate, kCandidate, kLeader };

struct Ready {
  std::optional<HardState> hard_state;   // if changed
  std::vector<RaftEntry> append;         // consecutive; may overwrite (duty 2)
  std::optional<RaftSnapshot> snapshot;  // the log before it is void
  bool restore = false;                  // `snapshot` came from the leader
  std::vector<RaftMessage> messages;
  std::vector<RaftEntry> committed;
  bool to_save() const { return hard_state || snapshot || !append.empty(); }
};

// Recalled is what the others have answered to a member that has lost its log.
struct Recalled {
  std::uint32_t answers = 0;  // of size - 1
  std::uint32_t whole = 0;    // of them, from members that have their log
  bool changed = false;    // the group has: nobody knows of whom to ask; this member stays silent
  std::uint32_t lost = 0;  // members that have none, by their answer or as they ask themselves
};

// A Raft is one member. A value: copies are independent.
//
// Threads: belongs to one thread.
class Raft {
 public:
  // The arguments are as saved; all empty in a member's first life; hard_state.lost alone if there
  // was one and its log is gone. The log's indices must be consecutive from the one after the
  // snapshot, its terms must not fall nor exceed the hard state's.
  Raft(RaftConfig config, HardState hard_state, std::vector<RaftEntry> log,
       RaftSnapshot snapshot = {});

  // now_ms: a monotone clock of this process; the first call starts the timers. A group of one
  // stands for election at its first tick.
  void tick(std::uint64_t now_ms);

  // Takes a message from the network. A malformed, misdirected or stale one has no effect, or is
  // answered with a refusal. `from` must be the authenticated sender.
  void receive(const RaftMessage& message);

  // Appends to the log; committed if and when it comes back in Ready::committed with this index and
  // the present term. Errors: kUnavailable  not the leader, or too many entries uncommitted
  //                           kBadInput     empty (kept for the no-op) or too large
  // After an error nothing has changed.
  Result<std::uint64_t> propose(Bytes data);

  // Begins a change of the group, which this leader or a later one carries through, one member at a time. Ok if
  // the group has it already, or is at it.
  // Errors: kUnavailable  not the leader, or another change is under way
  //         kBadInput     a place that was in the group before or that no group can have; not a
  //                       member to remove, or the last one; too many members
  Result<> propose_change(const RaftChange& change);

  // As leader, hands leadership to a voter whose log is as long, as soon as there is one; as any
  // other, nothing. An own wish ends with the leadership.
  void hand_over() { handing_over_ = role_ == RaftRole::kLeader; }

  Ready take_ready();
  bool has_ready() const;  // take_ready() would not be empty
  void persisted();

  // `data` is the state after everything that was handed out in Ready::committed (or restored): the
  // log up to there is dropped. Not between duties 1 and 3. No effect while a snapshot of the
  // leader's waits in the next Ready.
  void compact(Bytes data);

  RaftRole role() const { return role_; }
  std::uint64_t term() const { return hard_.term; }
  const HardState& hard_state() const { return hard_; }
  std::optional<std::uint32_t> leader() const { return leader_; }  // of term(), if known
  std::uint64_t commit_index() const { return commit_; }
  std::uint64_t last_index() const { return snapshot_.index + log_.size(); }
  const RaftSnapshot& snapshot() const { return snapshot_; }
  // Entry i is log()[i - snapshot().index - 1].
  const std::vector<RaftEntry>& log() const { return log_; }
  std::size_t log_bytes() const { return log_bytes_; }  // data of its entries
  // The group by the newest entry of the log that says so, committed or not.
  const RaftMembers& members() const { return members_; }
  // The index of the entry that has them, or of the snapshot behind it; 0: as the group began.
  std::uint64_t members_index() const { return members_index_; }
  // Whether that entry is committed, as far as this member knows.
  bool members_settled() const { return members_index_ <= commit_; }
  bool is_voter(std::uint32_t place) const;
  bool is_member(std::uint32_t place) const { return is_voter(place) || members_.learner == place; }
  bool votes() const { return is_voter(config_.self); }
  // Another member has said that this one was taken out.
  bool removed() const { return removed_; }
  // Whether the log has all that it ever acknowledged, as far as is known: if lost, it is repaired.
  bool whole() const { return !hard_.lost && hard_.floor == LogPosition{}; }
  Recalled recalled() const;

  // Whether this member leads, and an entry of its own term was committed and handed out in a Ready
  // (R10): from here on, everything that any earlier leader committed has been handed out too.
  bool leads_with_own_entry_committed() const;

  // How long this member waits in place of T: for its leader's word, for a majority's answers as
  // leader, for votes. It is T, and longer while others are late: four times the longest recent
  // lateness of their words and answers, at most ten T. Another term would bring no word sooner.
  std::uint64_t patience_ms() const;

  // When tick() has something to do next, on tick()'s clock; 0 before the first tick.
  std::uint64_t next_deadline() const;

 private:
  // A Peer is what the leader knows of a member.
  struct Peer {
    std::uint64_t match = 0;       // last index known equal and durable there
    std::uint64_t next = 1;        // first index to send; > match
    std::uint64_t contact_ms = 0;  // our clock when we sent the newest append that it answered
    bool awaiting = false;         // entries are under way; do not send them again meanwhile
    std::uint64_t sent_ms = 0;     // when
    std::uint64_t since_ms = 0;    // answers to what was sent before are those of an earlier life
    std::uint64_t matched_ms = 0;  // our clock when we sent what it acknowledged last
    // The bytes that the peer holds of the snapshot with this index.
    std::uint64_t snapshot_index = 0;
    std::uint64_t snapshot_bytes = 0;
    std::uint64_t snapshot_ms = 0;  // our clock when it said so
  };
  // A snapshot that comes in pieces.
  struct Incoming {
    std::uint64_t of_term = 0;  // the sender's
    std::uint64_t index = 0;
    std::uint64_t term = 0;
    std::uint64_t total = 0;
    Bytes data;
    std::optional<RaftMembers> members;
  };
  struct Answer {  // to a recall
    bool whole = false;
    bool changed = false;  // the group
    std::uint64_t term = 0;
    LogPosition last;
  };

  void on_pre_vote(const RaftMessage& m);
  void on_pre_vote_reply(const RaftMessage& m);
  void on_vote(const RaftMessage& m);
  void on_vote_reply(const RaftMessage& m);
  void on_append(const RaftMessage& m);
  void on_append_reply(const RaftMessage& m);
  void on_append_refused(const RaftMessage& m);
  void on_snapshot(const RaftMessage& m);
  void on_snapshot_reply(const RaftMessage& m);
  void on_recall(const RaftMessage& m);
  void on_recall_reply(const RaftMessage& m);
  void on_elect(const RaftMessage& m);
  void on_removed(const RaftMessage& m);

  void campaign();
  void begin_try();
  void ask_for_votes(RaftKind kind, std::uint64_t term, bool asked_by_leader);
  void stand(bool asked_by_leader = false);
  void lead();
  void follow(std::uint64_t term, std::optional<std::uint32_t> leader);
  void count_vote(std::uint32_t from);
  void advance_commit();
  void send_append(std::uint32_t to, bool with_entries);
  void send_snapshot(std::uint32_t to);
  void find_members();
  std::optional<RaftMembers> members_at(std::uint64_t index) const;
  void append_members(RaftMembers members);
  bool may_change() const;
  void review_change();
  void review_hand_over();
  bool hears(const RaftMessage& from_leader);
  Peer* answering(const RaftMessage& reply);
  void install(Incoming incoming);
  void drop_log_to(std::uint64_t index);
  void ask_all();
  void know_promises();
  void send_appends(bool heartbeat);
  void answer(const RaftMessage& m, RaftKind kind, std::uint64_t term, bool granted);
  void store(const std::vector<RaftEntry>& entries);
  void truncate_from(std::uint64_t index);
  void append_own(Bytes data);
  void reset_election_timer();
  void note_late(std::uint64_t late_ms);
  void note_answer(const RaftMessage& reply_to_try);
  void lose_leader();

  void check_invariants() const;

  bool well_formed(const RaftMessage& m) const;
  bool piece_well_formed(const RaftMessage& m) const;
  LogPosition last_position() const { return {term_at(last_index()), last_index()}; }
  LogPosition promised_position() const { return std::max(last_position(), hard_.floor); }
  const RaftEntry& entry(std::uint64_t index) const { return log_[index - snapshot_.index - 1]; }
  bool up_to_date(const RaftMessage& m) const;
  bool hears_leader() const;
  bool in_quorum_contact() const;
  std::uint64_t contact_of_quorum_ms() const;
  std::uint64_t term_at(std::uint64_t index) const;
  std::uint64_t search_back(std::uint64_t index, std::uint64_t term) const;
  std::uint32_t quorum() const;
  bool is_removed(std::uint32_t place) const;
  template <class Visit>
  void for_others(Visit visit) const;
  bool has(RaftBug bug) const { return kBreakable && config_.bug == bug; }

  RaftConfig config_;

  HardState hard_;
  RaftSnapshot snapshot_;
  std::vector<RaftEntry> log_;  // after the snapshot
  std::size_t log_bytes_ = 0;
  RaftMembers members_;              // as the entry at members_index_ has it
  std::uint64_t members_index_ = 0;  // 0: the group as it began
  std::uint64_t commit_ = 0;
  std::uint64_t handed_out_ = 0;  // <= commit_
  std::uint64_t durable_ = 0;     // own copies up to here are synced

  RaftRole role_ = RaftRole::kFollower;
  std::optional<std::uint32_t> leader_;
  std::set<std::uint32_t> votes_;            // (pre-)grants of this try
  std::uint64_t try_ = 0;                    // counts pre-vote tries of this life
  std::map<std::uint32_t, Answer> answers_;  // while lost
  std::set<std::uint32_t> asked_;            // while lost: members that ask, so lost their log
  std::optional<Incoming> incoming_;
  std::map<std::uint32_t, Peer> peers_;  // as leader; of all other members
  bool handing_over_ = false;            // as leader
  std::uint64_t elect_at_ms_ = 0;        // the next time that it asks a voter to stand
  bool removed_ = false;
  bool heard_later_member_ = false;  // while lost
  std::uint64_t own_first_ = 0;      // as leader: index of the term's no-op

  bool started_ = false;
  std::uint64_t now_ms_ = 0;
  std::uint64_t heard_ms_ = 0;  // last valid append from leader_
  std::uint64_t election_at_ms_ = 0;
  std::uint64_t heartbeat_at_ms_ = 0;
  std::uint64_t draws_ = 0;  // timeouts drawn so far
  // How late others were at most, in the present window of time and in the one before.
  std::array<std::uint64_t, 2> late_ms_{};
  std::uint64_t late_window_ = 0;
  // The leader followed last, and when it was heard: if it speaks again it was only late.
  std::optional<std::uint32_t> followed_;
  std::uint64_t followed_ms_ = 0;
  std::array<std::uint64_t, 8> tried_ms_{};  // when, by the number of a try; the last ones
  std::uint64_t tries_ = 0;                  // of this life

  std::vector<RaftMessage> messages_;
  bool hard_changed_ = false;
  bool snapshot_changed_ = false;
  bool restored_ = false;           // the snapshot that changed came from the leader
  std::uint64_t unsaved_from_ = 1;  // first index not yet in a Ready's append
  bool saving_ = false;             // between take_ready() and persisted()
  HardState saving_hard_;
  std::uint64_t saving_to_ = 0;  // last index covered by the Ready that is being saved
  HardState durable_hard_;
};

// Visits the places of all other members: those that are sent the log.
template <class Visit>
void Raft::for_others(Visit visit) const {
  for (const std::uint32_t place : members_.voters)
    if (place != config_.self) visit(place);
  if (members_.learner && *members_.learner != config_.self) visit(*members_.learner);
}

}  // namespace starling::elastic
