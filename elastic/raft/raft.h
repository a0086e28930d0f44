#pragma once
// Raft for a fixed group of coordinators: election with pre-vote and check-quorum, replication,
// commit. Pure: time arrives through tick(), randomness as a seed, storage and network are the
// caller's. No membership changes and no snapshots: the log holds membership events, thousands at
// most, and is kept whole in memory.
// Algorithm: Ongaro, "Consensus: Bridging Theory and Practice" (2014), chapter 3; pre-vote 9.6;
// check-quorum 6.2.
//
// Duties of the caller, in this order, while has_ready() after any call:
//   1. take_ready(). Not again before duty 3.
//   2. Save `hard_state` and `append`, and sync. If append[0].index is at or below the last saved
//      index, everything saved from there on is void. A failed write or sync ends the process: it
//      is never tried again, since the pages may be clean with the data gone.
//   3. persisted(). Own vote and own copies count from here on. Call it even if there was
//      nothing to save.
//   4. Send `messages`, and none before duty 3: a grant or an acknowledgement is a promise that
//      outlives the process. They may be lost, doubled, reordered.
//   5. Apply `committed`: consecutive entries, each once per life of this object, from index 1.
//   6. Call tick() at next_deadline() at the latest, and before receive() if time has passed.
// tick(), receive() and propose() may be called between duties 1 and 3 (the disk may be slow); what
// they cause is in the next Ready.
//
// Meaning of RaftMessage's fields here:
//   kPreVote       term = asked (own + 1); last_index, last_term = own last entry; round = try
//   kPreVoteReply  term = asked if granted, else own; round as asked
//   kVote          term; last_index, last_term
//   kVoteReply     term; granted
//   kAppend        term; last_index, last_term = entry before `entries`; commit; round = leader's
//                  clock when sent, ms
//   kAppendReply   term; round as sent; granted: match = last index verified by that append;
//                  refused: last_index = refused `last_index`; match, last_term = an entry at or
//                  below it from which to go on searching (never an acknowledgement)

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/wire/messages.h"
#include "elastic/planted.h"

namespace starling::elastic {

// What a member must never forget besides its log. Saved as one.
struct HardState {
  std::uint64_t term = 0;
  std::optional<std::uint32_t> vote;  // in `term`
  bool operator==(const HardState&) const = default;
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
};

struct RaftConfig {
  std::uint32_t self = 0;
  std::uint32_t size = 1;                    // members 0 .. size-1
  std::uint64_t election_ms = 150;           // T: timeouts are drawn from [T, 2T)
  std::uint64_t heartbeat_ms = 50;           // < T
  std::uint64_t seed = 0;                    // differs from member to member, and from life to life
  std::size_t batch_entries_max = 64;        // per append
  std::size_t batch_bytes_max = 256 * 1024;  // per append, but always one entry
  std::size_t entry_bytes_max = 8 * 1024 * 1024;
  std::size_t uncommitted_max = 1024;  // entries; propose() refuses beyond
  RaftBug bug = RaftBug::kNone;
};

enum class RaftRole : std::uint8_t { kFollower, kPreCandidate, kCandidate, kLeader };

struct Ready {
  std::optional<HardState> hard_state;  // if changed
  std::vector<RaftEntry> append;        // consecutive; may overwrite (duty 2)
  std::vector<RaftMessage> messages;
  std::vector<RaftEntry> committed;
  bool empty() const {
    return !hard_state && append.empty() && messages.empty() && committed.empty();
  }
};

// One member. A value: copies are independent.
//
// Threads: belongs to one thread.
class Raft {
 public:
  // hard_state, log: as saved, or {} and empty in a member's first life. The log's indices must be
  // 1, 2, ..., its terms must not fall nor exceed the hard state's.
  Raft(RaftConfig config, HardState hard_state, std::vector<RaftEntry> log);

  // now_ms: a monotone clock of this process; the first call starts the timers. A group of one
  // stands for election at its first tick.
  void tick(std::uint64_t now_ms);

  // Takes a message from the network. What is malformed, misdirected or stale has no effect, or is
  // answered with a refusal. `from` must be the authenticated sender.
  void receive(const RaftMessage& message);

  // Appends to the log; committed if and when it comes back in Ready::committed with this index and
  // the present term. Errors: kUnavailable  not the leader, or too many entries uncommitted
  //                           kBadInput     empty (kept for the no-op) or too large
  // After an error nothing has changed.
  Result<std::uint64_t> propose(Bytes data);

  Ready take_ready();
  bool has_ready() const;  // take_ready() would not be empty
  void persisted();

  RaftRole role() const { return role_; }
  std::uint64_t term() const { return hard_.term; }
  const HardState& hard_state() const { return hard_; }
  std::optional<std::uint32_t> leader() const { return leader_; }  // of term(), if known
  std::uint64_t commit_index() const { return commit_; }
  std::uint64_t last_index() const { return log_.size(); }
  const std::vector<RaftEntry>& log() const { return log_; }  // entry i is log()[i - 1]

  // Leads, and an entry of its own term was committed and handed out in a Ready (rule R10): from
  // here on, everything that any earlier leader committed has been handed out too.
  bool leads_with_own_entry_committed() const;

  // When tick() has something to do next, on tick()'s clock; 0 before the first tick.
  std::uint64_t next_deadline() const;

 private:
  // What the leader knows of a member.
  struct Peer {
    std::uint64_t match = 0;       // last index known equal and durable there
    std::uint64_t next = 1;        // first index to send; > match
    std::uint64_t contact_ms = 0;  // our clock when we sent the newest append that it answered
    bool awaiting = false;         // entries are under way; do not send them again meanwhile
    std::uint64_t sent_ms = 0;     // when
  };

  void on_pre_vote(const RaftMessage& m);
  void on_pre_vote_reply(const RaftMessage& m);
  void on_vote(const RaftMessage& m);
  void on_vote_reply(const RaftMessage& m);
  void on_append(const RaftMessage& m);
  void on_append_reply(const RaftMessage& m);
  void on_append_refused(const RaftMessage& m);

  void campaign();
  void stand();
  void lead();
  void follow(std::uint64_t term, std::optional<std::uint32_t> leader);
  void count_vote(std::uint32_t from);
  void advance_commit();
  void send_append(std::uint32_t to, bool with_entries);
  void send_appends(bool heartbeat);
  void answer(const RaftMessage& m, RaftKind kind, std::uint64_t term, bool granted);
  void store(const std::vector<RaftEntry>& entries);
  void truncate_from(std::uint64_t index);
  void append_own(Bytes data);
  void reset_election_timer();

  bool well_formed(const RaftMessage& m) const;
  bool up_to_date(const RaftMessage& m) const;
  bool hears_leader() const;
  bool in_quorum_contact() const;
  std::uint64_t contact_of_quorum_ms() const;
  std::uint64_t term_at(std::uint64_t index) const;
  std::uint64_t search_back(std::uint64_t index, std::uint64_t term) const;
  std::uint32_t quorum() const;
  bool has(RaftBug bug) const { return kBreakable && config_.bug == bug; }

  RaftConfig config_;

  HardState hard_;
  std::vector<RaftEntry> log_;
  std::uint64_t commit_ = 0;
  std::uint64_t handed_out_ = 0;  // <= commit_
  std::uint64_t durable_ = 0;     // own copies up to here are synced

  RaftRole role_ = RaftRole::kFollower;
  std::optional<std::uint32_t> leader_;
  std::vector<bool> votes_;      // (pre-)grants of this try
  std::uint64_t try_ = 0;        // counts pre-vote tries of this life
  std::vector<Peer> peers_;      // as leader; [self] unused
  std::uint64_t own_first_ = 0;  // as leader: index of the term's no-op
  std::uint64_t led_since_ms_ = 0;

  bool started_ = false;
  std::uint64_t now_ms_ = 0;
  std::uint64_t heard_ms_ = 0;  // last valid append from leader_
  std::uint64_t election_at_ms_ = 0;
  std::uint64_t heartbeat_at_ms_ = 0;
  std::uint64_t draws_ = 0;  // timeouts drawn so far

  std::vector<RaftMessage> messages_;
  bool hard_changed_ = false;
  std::uint64_t unsaved_from_ = 1;  // first index not yet in a Ready's append
  bool saving_ = false;             // between take_ready() and persisted()
  HardState saving_hard_;
  std::uint64_t saving_to_ = 0;  // last index covered by the Ready that is being saved
  HardState durable_hard_;
};

}  // namespace starling::elastic
