#include "elastic/raft/raft.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/wire/limits.h"
#include "core/wire/raft_members.h"

namespace starling::elastic {

namespace {

// No honest member counts so far, and sums below cannot wrap.
constexpr std::uint64_t kNumberMax = std::uint64_t{1} << 62;
constexpr std::uint64_t kLearnerWaits = 3;  // times as long as a voter, without a leader

bool is_request(RaftKind kind) {
  return kind == RaftKind::kPreVote || kind == RaftKind::kVote || kind == RaftKind::kAppend ||
         kind == RaftKind::kSnapshot;
}

}  // namespace

Raft::Raft(RaftConfig config, HardState hard_state, std::vector<RaftEntry> log,
           RaftSnapshot snapshot)
    : config_(config),
      hard_(hard_state),
      snapshot_(std::move(snapshot)),
      log_(std::move(log)),
      commit_(snapshot_.index),
      handed_out_(snapshot_.index) {
  STARLING_CHECK(config_.size >= 1);
  STARLING_CHECK(config_.size <= limits::kVoters && config_.self < limits::kSeats);
  STARLING_CHECK(config_.election_ms > 0);
  STARLING_CHECK(config_.batch_entries_max > 0);
  STARLING_CHECK((snapshot_.index == 0) == (snapshot_.data == nullptr));
  std::uint64_t term = snapshot_.term;
  for (std::size_t i = 0; i < log_.size(); ++i) {
    STARLING_CHECK(log_[i].index == snapshot_.index + i + 1);
    STARLING_CHECK(log_[i].term >= std::max<std::uint64_t>(term, 1));
    term = log_[i].term;
    log_bytes_ += log_[i].data.size();
  }
  STARLING_CHECK(term <= hard_.term);
  if (has(RaftBug::kWipedVotes)) hard_.lost = false;
  STARLING_CHECK(!hard_.lost || (last_index() == 0 && hard_.term == 0));
  find_members();
  // Tries start at a random number, so that grants to an earlier life do not count for this one.
  try_ = mix64(config_.seed, config_.self) >> 1;
  durable_hard_ = hard_;
  durable_ = last_index();
  saving_to_ = durable_;
  unsaved_from_ = durable_ + 1;
}

// ---- Time -------------------------------------------------------------------------------------

void Raft::tick(std::uint64_t now_ms) {
  now_ms_ = std::max(now_ms_, now_ms);
  if (!started_) {
    started_ = true;
    reset_election_timer();
    if (hard_.lost) {
      ask_all();
    } else if (votes() && members_.voters.size() == 1) {
      campaign();
    }
    return check_invariants();
  }
  if (hard_.lost) {
    if (now_ms_ >= election_at_ms_) ask_all();
    return;
  }
  if (role_ != RaftRole::kLeader) {
    if (now_ms_ >= election_at_ms_) campaign();
  } else if (!in_quorum_contact() && !has(RaftBug::kNoCheckQuorum)) {
    // The others may have a new leader by now, and this one could not know.
    follow(hard_.term, {});
  } else if (now_ms_ >= heartbeat_at_ms_) {
    heartbeat_at_ms_ = now_ms_ + config_.heartbeat_ms;
    send_appends(/*heartbeat=*/true);
    review_change();
  }
  check_invariants();
}

std::uint64_t Raft::next_deadline() const {
  if (!started_) return 0;
  if (role_ != RaftRole::kLeader) return election_at_ms_;
  return std::min(heartbeat_at_ms_, contact_of_quorum_ms() + patience_ms());
}

void Raft::reset_election_timer() {
  // The member's number is mixed in: equal seeds must not mean equal timeouts.
  const auto draw = mix64(mix64(config_.seed, config_.self), draws_++) % patience_ms();
  // Voters come first: a learner is needed only if its log is ahead of theirs.
  const std::uint64_t times = votes() ? 1 : kLearnerWaits;
  election_at_ms_ = now_ms_ + times * patience_ms() + draw;
}

// ---- Election ---------------------------------------------------------------------------------

// Asks whether a vote would be won; changes neither term nor vote (pre-vote).
void Raft::campaign() {
  const bool may_stand = is_member(config_.self) && !removed_ && last_position() >= hard_.floor;
  if (!may_stand) return reset_election_timer();
  if (has(RaftBug::kRemovedStands)) return stand();
  role_ = RaftRole::kPreCandidate;
  lose_leader();
  peers_.clear();
  begin_try();
  ask_for_votes(RaftKind::kPreVote, hard_.term + 1, /*asked_by_leader=*/false);
  count_vote(config_.self);
}

void Raft::begin_try() {
  votes_.clear();
  tried_ms_[++try_ % tried_ms_.size()] = now_ms_;
  ++tries_;
  reset_election_timer();
}

void Raft::ask_for_votes(RaftKind kind, std::uint64_t term, bool asked_by_leader) {
  for_others([&](std::uint32_t to) {
    if (!is_voter(to)) return;
    RaftMessage m{kind, config_.self, to, term};
    m.last_index = last_index();
    m.last_term = term_at(last_index());
    m.round = try_;
    m.granted = asked_by_leader;
    messages_.push_back(std::move(m));
  });
}

void Raft::stand(bool asked_by_leader) {
  follow(hard_.term + 1, {});
  role_ = RaftRole::kCandidate;
  hard_.vote = config_.self;
  votes_.clear();
  reset_election_timer();
  ask_for_votes(RaftKind::kVote, hard_.term, asked_by_leader);
  // The own vote is counted in persisted().
  if (has(RaftBug::kSelfVoteEarly)) count_vote(config_.self);
}

void Raft::count_vote(std::uint32_t from) {
  if (is_voter(from)) votes_.insert(from);
  if (votes_.size() < quorum()) return;
  if (role_ == RaftRole::kPreCandidate) return stand();
  lead();
}

void Raft::lead() {
  role_ = RaftRole::kLeader;
  leader_ = config_.self;
  own_first_ = last_index() + 1;
  Peer unknown;
  unknown.next = own_first_;
  unknown.contact_ms = unknown.since_ms = now_ms_;
  for_others([&](std::uint32_t place) { peers_[place] = unknown; });
  handing_over_ = false;
  heartbeat_at_ms_ = now_ms_ + config_.heartbeat_ms;
  // Commits what earlier terms left behind (8.4.2 of the paper: only own entries are counted).
  append_own({});
}

void Raft::follow(std::uint64_t term, std::optional<std::uint32_t> leader) {
  const bool led = role_ == RaftRole::kLeader;
  role_ = RaftRole::kFollower;
  lose_leader();
  leader_ = leader;
  peers_.clear();
  if (led) reset_election_timer();
  if (term == hard_.term) {
    // The vote stays: a second one in the same term could elect a second leader.
    if (has(RaftBug::kClearVoteOnStepDown)) hard_.vote.reset();
    return;
  }
  hard_.term = term;
  hard_.vote.reset();
  hard_changed_ = true;
  // Drop unsent messages of the old term: they would acknowledge a log that may be cut before it is
  // saved.
  std::erase_if(messages_, [&](const RaftMessage& m) { return m.term < term; });
}

// ---- Messages ---------------------------------------------------------------------------------

void Raft::receive(const RaftMessage& m) {
  if (!well_formed(m)) return;
  // A member that has lost its log answers only recalls: to other messages it may have promised
  // another answer.
  const bool recalls = m.kind == RaftKind::kRecall || m.kind == RaftKind::kRecallReply;
  if (hard_.lost && m.from >= config_.size) heard_later_member_ = true;
  if (hard_.lost && !recalls) return;
  switch (m.kind) {
    case RaftKind::kPreVote:
      on_pre_vote(m);
      break;
    case RaftKind::kPreVoteReply:
      on_pre_vote_reply(m);
      break;
    case RaftKind::kVote:
      on_vote(m);
      break;
    case RaftKind::kVoteReply:
      on_vote_reply(m);
      break;
    case RaftKind::kAppend:
      on_append(m);
      break;
    case RaftKind::kAppendReply:
      on_append_reply(m);
      break;
    case RaftKind::kSnapshot:
      on_snapshot(m);
      break;
    case RaftKind::kSnapshotReply:
      on_snapshot_reply(m);
      break;
    case RaftKind::kRecall:
      on_recall(m);
      break;
    case RaftKind::kRecallReply:
      on_recall_reply(m);
      break;
    case RaftKind::kElect:
      on_elect(m);
      break;
    case RaftKind::kRemoved:
      on_removed(m);
      break;
  }
  check_invariants();
}

bool Raft::well_formed(const RaftMessage& m) const {
  if (m.to != config_.self || m.from >= limits::kSeats || m.from == config_.self) return false;
  if (m.term > kNumberMax || m.last_index > kNumberMax) return false;
  if (!is_request(m.kind)) return true;
  if (m.term == 0 || m.last_term > m.term) return false;
  if ((m.last_index == 0) != (m.last_term == 0)) return false;
  if (m.kind == RaftKind::kSnapshot) return piece_well_formed(m);
  auto index = m.last_index;
  auto term = std::max<std::uint64_t>(m.last_term, 1);
  for (const RaftEntry& e : m.entries) {
    if (e.index != ++index || e.term < term || e.term > m.term) return false;
    if (e.data.size() > config_.entry_bytes_max) return false;
    if (e.members && (!e.data.empty() || !is_group(*e.members))) return false;
    term = e.term;
  }
  return true;
}

void Raft::on_pre_vote(const RaftMessage& m) {
  if (is_removed(m.from)) return answer(m, RaftKind::kRemoved, hard_.term, false);
  const bool blocked = hears_leader() && leader_ != m.from;  // the leader may ask after a restart
  const bool granted = m.term > hard_.term && !blocked && up_to_date(m);
  answer(m, RaftKind::kPreVoteReply, granted ? m.term : hard_.term, granted);
}

void Raft::on_pre_vote_reply(const RaftMessage& m) {
  note_answer(m);
  if (!m.granted) {
    if (m.term > hard_.term) follow(m.term, {});
    return;
  }
  if (role_ != RaftRole::kPreCandidate) return;
  if (m.round != try_ || m.term != hard_.term + 1) return;  // of an earlier try
  count_vote(m.from);
}

void Raft::on_vote(const RaftMessage& m) {
  if (m.term > hard_.term) {
    // A follower that hears its leader keeps it. A leader steps down: the candidate has won the
    // pre-vote of a majority, hence of members that do not hear this leader; or a leader has asked for it.
    const bool follows = role_ != RaftRole::kLeader && hears_leader() && !m.granted;
    if (follows && leader_ != m.from) return;
    follow(m.term, {});
  }
  // Once this term has a leader, there is no other candidate to vote for.
  const bool free = hard_.vote ? *hard_.vote == m.from : !leader_;
  const bool granted = m.term == hard_.term && free && up_to_date(m);
  if (granted) {
    hard_.vote = m.from;
    hard_changed_ = true;
    reset_election_timer();
  }
  answer(m, RaftKind::kVoteReply, hard_.term, granted);
}

void Raft::on_vote_reply(const RaftMessage& m) {
  note_answer(m);
  if (m.term > hard_.term) return follow(m.term, {});
  if (m.term != hard_.term || role_ != RaftRole::kCandidate || !m.granted) return;
  if (m.round != try_) return;  // asked by an earlier life, which lost its log
  count_vote(m.from);
}

void Raft::answer(const RaftMessage& m, RaftKind kind, std::uint64_t term, bool granted) {
  RaftMessage reply{kind, config_.self, m.from, term};
  reply.granted = granted;
  reply.round = m.round;
  messages_.push_back(std::move(reply));
}

// ---- Storage ----------------------------------------------------------------------------------

bool Raft::has_ready() const {
  return hard_changed_ || snapshot_changed_ || unsaved_from_ <= last_index() ||
         !messages_.empty() || handed_out_ < commit_;
}

Ready Raft::take_ready() {
  STARLING_CHECK(!saving_);
  Ready ready;
  if (std::exchange(hard_changed_, false)) ready.hard_state = hard_;
  if (std::exchange(snapshot_changed_, false)) {
    ready.snapshot = snapshot_;
    ready.restore = std::exchange(restored_, false);
    unsaved_from_ = snapshot_.index + 1;
  }
  const auto from = [&](std::uint64_t index) {
    return log_.begin() + static_cast<std::ptrdiff_t>(index - snapshot_.index - 1);
  };
  ready.append.assign(from(unsaved_from_), log_.end());
  ready.messages = std::exchange(messages_, {});
  ready.committed.assign(from(handed_out_ + 1), from(commit_ + 1));
  handed_out_ = commit_;
  unsaved_from_ = last_index() + 1;
  saving_ = true;
  saving_hard_ = hard_;
  saving_to_ = last_index();
  check_invariants();
  return ready;
}

void Raft::persisted() {
  STARLING_CHECK(saving_);
  saving_ = false;
  durable_hard_ = saving_hard_;
  durable_ = std::max(durable_, saving_to_);
  // The lost log's copies are here again: the member is as good as any other.
  if (hard_.floor != LogPosition{} && durable_ >= snapshot_.index &&
      LogPosition{term_at(durable_), durable_} >= hard_.floor) {
    hard_.floor = {};
    hard_changed_ = true;
  }
  const bool vote_is_safe = durable_hard_.term == hard_.term && durable_hard_.vote == hard_.vote;
  if (role_ == RaftRole::kCandidate && vote_is_safe && !votes_.contains(config_.self)) {
    count_vote(config_.self);
  } else if (role_ == RaftRole::kLeader) {
    advance_commit();
  }
  check_invariants();
}

bool Raft::leads_with_own_entry_committed() const {
  return role_ == RaftRole::kLeader && handed_out_ >= own_first_;
}

// ---- Questions --------------------------------------------------------------------------------

std::uint32_t Raft::quorum() const {
  const auto majority = static_cast<std::uint32_t>(members_.voters.size()) / 2 + 1;
  return has(RaftBug::kQuorumTooSmall) ? std::max(majority - 1, 1u) : majority;
}

bool Raft::up_to_date(const RaftMessage& m) const {
  if (has(RaftBug::kVoteForAnyLog)) return true;
  const auto own = has(RaftBug::kNoFloor) ? last_position() : promised_position();
  return LogPosition{m.last_term, m.last_index} >= own;
}

bool Raft::hears_leader() const {
  if (has(RaftBug::kNoStickiness)) return false;
  if (role_ == RaftRole::kLeader) return in_quorum_contact();
  return leader_ && now_ms_ - heard_ms_ < patience_ms();
}

bool Raft::in_quorum_contact() const {
  return now_ms_ - contact_of_quorum_ms() < patience_ms();
}

std::uint64_t Raft::contact_of_quorum_ms() const {
  std::vector<std::uint64_t> contacts;
  for (const std::uint32_t place : members_.voters)
    contacts.push_back(place == config_.self ? now_ms_ : peers_.at(place).contact_ms);
  std::sort(contacts.begin(), contacts.end(), std::greater<>());
  return contacts[quorum() - 1];
}

std::uint64_t Raft::term_at(std::uint64_t index) const {
  STARLING_CHECK(index >= snapshot_.index && index <= last_index());
  return index == snapshot_.index ? snapshot_.term : entry(index).term;
}

// The last index at or below `index` whose term is at most `term`: no later entry can be equal in a
// log that has `term` at `index`. The leader steps back once per term, not per entry.
std::uint64_t Raft::search_back(std::uint64_t index, std::uint64_t term) const {
  index = std::min(index, last_index());
  while (index > snapshot_.index && term_at(index) > term) --index;
  return index;
}

// Checks what holds after each call, whatever came from outside.
void Raft::check_invariants() const {
  if (config_.bug != RaftBug::kNone) return;  // the tests that plant a fault judge what comes of it
  STARLING_CHECK(snapshot_.index <= handed_out_);
  STARLING_CHECK(handed_out_ <= commit_);
  STARLING_CHECK(commit_ <= last_index());
  STARLING_CHECK(durable_ <= last_index());
  STARLING_CHECK(unsaved_from_ <= last_index() + 1);
  STARLING_CHECK(unsaved_from_ > snapshot_.index || snapshot_changed_);
  STARLING_CHECK(term_at(last_index()) <= hard_.term);
  STARLING_CHECK(log_.empty() || log_.front().index == snapshot_.index + 1);
  STARLING_CHECK(log_.empty() || log_.back().index == last_index());
  STARLING_CHECK(snapshot_.term <= term_at(last_index()));
  STARLING_CHECK(is_group(members_) && members_index_ <= last_index());
  STARLING_CHECK(!hard_.lost || (role_ == RaftRole::kFollower && last_index() == 0));
  if (role_ == RaftRole::kLeader) {
    STARLING_CHECK(leader_ == config_.self && hard_.vote == config_.self);
    STARLING_CHECK(last_index() >= own_first_ && is_member(config_.self));
    for (const auto& [place, peer] : peers_)
      STARLING_CHECK(is_member(place) && peer.match < peer.next && peer.next <= last_index() + 1);
    for_others([&](std::uint32_t place) { STARLING_CHECK(peers_.contains(place)); });
  } else {
    STARLING_CHECK(peers_.empty() && leader_ != config_.self);
  }
}

}  // namespace starling::elastic
