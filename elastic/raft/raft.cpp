#include "elastic/raft/raft.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"

namespace starling::elastic {

namespace {

// No honest member gets near it, and sums below cannot wrap.
constexpr std::uint64_t kNumberMax = std::uint64_t{1} << 62;

bool is_request(RaftKind kind) {
  return kind == RaftKind::kPreVote || kind == RaftKind::kVote || kind == RaftKind::kAppend;
}

}  // namespace

Raft::Raft(RaftConfig config, HardState hard_state, std::vector<RaftEntry> log)
    : config_(config), hard_(hard_state), log_(std::move(log)) {
  STARLING_CHECK(config_.size >= 1);
  STARLING_CHECK(config_.self < config_.size);
  STARLING_CHECK(config_.election_ms > 0);
  STARLING_CHECK(config_.batch_entries_max > 0);
  std::uint64_t term = 0;
  for (std::size_t i = 0; i < log_.size(); ++i) {
    STARLING_CHECK(log_[i].index == i + 1);
    STARLING_CHECK(log_[i].term >= std::max<std::uint64_t>(term, 1));
    term = log_[i].term;
  }
  STARLING_CHECK(term <= hard_.term);
  // So that grants of an earlier life are not taken for ours.
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
    if (config_.size == 1) campaign();
    return;
  }
  if (role_ != RaftRole::kLeader) {
    if (now_ms_ >= election_at_ms_) campaign();
    return;
  }
  // Others may have elected a leader by now; this one could not know.
  if (!in_quorum_contact() && !has(RaftBug::kNoCheckQuorum)) return follow(hard_.term, {});
  if (now_ms_ < heartbeat_at_ms_) return;
  heartbeat_at_ms_ = now_ms_ + config_.heartbeat_ms;
  send_appends(/*heartbeat=*/true);
}

std::uint64_t Raft::next_deadline() const {
  if (!started_) return 0;
  if (role_ != RaftRole::kLeader) return election_at_ms_;
  return std::min(heartbeat_at_ms_, contact_of_quorum_ms() + config_.election_ms);
}

void Raft::reset_election_timer() {
  // The member's number is mixed in: equal seeds must not mean equal timeouts.
  const auto draw = mix64(mix64(config_.seed, config_.self), draws_++) % config_.election_ms;
  election_at_ms_ = now_ms_ + config_.election_ms + draw;
}

// ---- Election ---------------------------------------------------------------------------------

// Asks whether a vote would be won; changes neither term nor vote (pre-vote).
void Raft::campaign() {
  role_ = RaftRole::kPreCandidate;
  leader_.reset();
  peers_.clear();
  votes_.assign(config_.size, false);
  ++try_;
  reset_election_timer();
  for (std::uint32_t to = 0; to < config_.size; ++to) {
    if (to == config_.self) continue;
    RaftMessage m{RaftKind::kPreVote, config_.self, to, hard_.term + 1};
    m.last_index = last_index();
    m.last_term = term_at(last_index());
    m.round = try_;
    messages_.push_back(std::move(m));
  }
  count_vote(config_.self);
}

void Raft::stand() {
  follow(hard_.term + 1, {});
  role_ = RaftRole::kCandidate;
  hard_.vote = config_.self;
  votes_.assign(config_.size, false);
  reset_election_timer();
  for (std::uint32_t to = 0; to < config_.size; ++to) {
    if (to == config_.self) continue;
    RaftMessage m{RaftKind::kVote, config_.self, to, hard_.term};
    m.last_index = last_index();
    m.last_term = term_at(last_index());
    messages_.push_back(std::move(m));
  }
  // The own vote is counted in persisted().
  if (has(RaftBug::kSelfVoteEarly)) count_vote(config_.self);
}

void Raft::count_vote(std::uint32_t from) {
  votes_[from] = true;
  if (std::count(votes_.begin(), votes_.end(), true) < quorum()) return;
  if (role_ == RaftRole::kPreCandidate) return stand();
  lead();
}

void Raft::lead() {
  role_ = RaftRole::kLeader;
  leader_ = config_.self;
  led_since_ms_ = now_ms_;
  own_first_ = last_index() + 1;
  peers_.assign(config_.size, {/*match=*/0, /*next=*/own_first_, /*contact_ms=*/now_ms_});
  heartbeat_at_ms_ = now_ms_ + config_.heartbeat_ms;
  // Commits what earlier terms left behind (8.4.2 of the paper: only own entries are counted).
  append_own({});
}

void Raft::follow(std::uint64_t term, std::optional<std::uint32_t> leader) {
  const bool led = role_ == RaftRole::kLeader;
  role_ = RaftRole::kFollower;
  leader_ = leader;
  peers_.clear();
  if (led) reset_election_timer();
  if (term == hard_.term) {
    // The vote stays: a second one in the same term could elect a second leader.
    if (has(RaftBug::kClearVoteOnStepDown)) hard_.vote.reset();
    return;
  }
  hard_ = {term, {}};
  hard_changed_ = true;
  // What was not yet sent of the old term would acknowledge a log that may be cut before it is
  // saved.
  std::erase_if(messages_, [&](const RaftMessage& m) { return m.term < term; });
}

// ---- Messages ---------------------------------------------------------------------------------

void Raft::receive(const RaftMessage& m) {
  if (!well_formed(m)) return;
  switch (m.kind) {
    case RaftKind::kPreVote:
      return on_pre_vote(m);
    case RaftKind::kPreVoteReply:
      return on_pre_vote_reply(m);
    case RaftKind::kVote:
      return on_vote(m);
    case RaftKind::kVoteReply:
      return on_vote_reply(m);
    case RaftKind::kAppend:
      return on_append(m);
    case RaftKind::kAppendReply:
      return on_append_reply(m);
  }
}

bool Raft::well_formed(const RaftMessage& m) const {
  if (m.to != config_.self || m.from >= config_.size || m.from == config_.self) return false;
  if (m.term > kNumberMax || m.last_index > kNumberMax) return false;
  if (!is_request(m.kind)) return true;
  if (m.term == 0 || m.last_term > m.term) return false;
  if ((m.last_index == 0) != (m.last_term == 0)) return false;
  auto index = m.last_index;
  auto term = std::max<std::uint64_t>(m.last_term, 1);
  for (const RaftEntry& e : m.entries) {
    if (e.index != ++index || e.term < term || e.term > m.term) return false;
    if (e.data.size() > config_.entry_bytes_max) return false;
    term = e.term;
  }
  return true;
}

void Raft::on_pre_vote(const RaftMessage& m) {
  const bool blocked = hears_leader() && leader_ != m.from;  // who leads may ask after a restart
  const bool granted = m.term > hard_.term && !blocked && up_to_date(m);
  answer(m, RaftKind::kPreVoteReply, granted ? m.term : hard_.term, granted);
}

void Raft::on_pre_vote_reply(const RaftMessage& m) {
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
    // A follower that hears its leader keeps it. A leader steps down: whoever asks has won the
    // pre-vote of a majority, hence of members that do not hear this one.
    const bool follows = role_ != RaftRole::kLeader && hears_leader();
    if (follows && leader_ != m.from) return;
    follow(m.term, {});
  }
  // Once this term has a leader, there is nobody else to vote for.
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
  if (m.term > hard_.term) return follow(m.term, {});
  if (m.term != hard_.term || role_ != RaftRole::kCandidate || !m.granted) return;
  count_vote(m.from);
}

void Raft::on_append(const RaftMessage& m) {
  if (m.term < hard_.term) return answer(m, RaftKind::kAppendReply, hard_.term, false);
  if (m.term == hard_.term && leader_ && *leader_ != m.from) return;  // impossible, hence false
  if (m.term > hard_.term || leader_ != m.from) follow(m.term, m.from);
  heard_ms_ = now_ms_;
  reset_election_timer();

  if (m.last_index > last_index() || term_at(m.last_index) != m.last_term) {
    answer(m, RaftKind::kAppendReply, hard_.term, false);
    RaftMessage& reply = messages_.back();
    reply.last_index = m.last_index;
    reply.match = search_back(std::min(m.last_index, last_index()), m.last_term);
    reply.last_term = term_at(reply.match);
    return;
  }
  const auto conflict = std::find_if(m.entries.begin(), m.entries.end(), [&](const RaftEntry& e) {
    return e.index > last_index() || term_at(e.index) != e.term;
  });
  // A conflict with what is committed cannot come from a leader of this group.
  if (conflict != m.entries.end() && conflict->index <= commit_) return;
  store({conflict, m.entries.end()});
  if (has(RaftBug::kTruncateAlways)) {
    truncate_from(std::max(m.last_index + m.entries.size(), commit_) + 1);
  }

  // Beyond `verified` the log may still hold what the leader does not have.
  const auto verified = m.last_index + m.entries.size();
  const auto bound = has(RaftBug::kCommitUnverified) ? last_index() : verified;
  commit_ = std::max(commit_, std::min(m.commit, bound));
  answer(m, RaftKind::kAppendReply, hard_.term, true);
  messages_.back().match = verified;
}

void Raft::on_append_reply(const RaftMessage& m) {
  if (m.term > hard_.term) return follow(m.term, {});
  if (m.term != hard_.term || role_ != RaftRole::kLeader) return;
  if (m.round < led_since_ms_ || m.round > now_ms_) return;  // no append of this leadership
  Peer& peer = peers_[m.from];
  peer.contact_ms = std::max(peer.contact_ms, m.round);
  if (!m.granted) return on_append_refused(m);
  if (m.match > last_index()) return;
  // Entries are sent again when the answer to a later heartbeat shows that they were lost; never on
  // an answer that was doubled, or each round trip would multiply the messages.
  if (m.match > peer.match || m.round > peer.sent_ms) peer.awaiting = false;
  const auto verified = peer.match;
  const auto committed = commit_;
  if (m.match > peer.match) {
    peer.match = m.match;
    peer.next = std::max(peer.next, peer.match + 1);
    advance_commit();
  }
  if (!peer.awaiting && peer.next <= last_index()) {
    send_append(m.from, /*with_entries=*/true);
  } else if (peer.match > verified && commit_ == committed && commit_ > verified) {
    // Others made the commit; when this one was told, it could not yet follow.
    send_append(m.from, /*with_entries=*/false);
  }
}

void Raft::on_append_refused(const RaftMessage& m) {
  Peer& peer = peers_[m.from];
  if (has(RaftBug::kMatchFromReject)) {
    peer.match = std::max(peer.match, std::min(m.match, last_index()));
    advance_commit();
  }
  // Late answers to an earlier search, and what a durable copy contradicts.
  if (m.last_index + 1 != peer.next || m.last_index <= peer.match) return;
  const auto hint = search_back(std::min(m.match, m.last_index - 1), m.last_term);
  peer.next = std::max(hint, peer.match) + 1;
  send_append(m.from, /*with_entries=*/true);
}

void Raft::answer(const RaftMessage& m, RaftKind kind, std::uint64_t term, bool granted) {
  RaftMessage reply{kind, config_.self, m.from, term};
  reply.granted = granted;
  reply.round = m.round;
  messages_.push_back(std::move(reply));
}

// ---- Replication ------------------------------------------------------------------------------

Result<std::uint64_t> Raft::propose(Bytes data) {
  if (role_ != RaftRole::kLeader) return Error(Code::kUnavailable, "not the leader");
  if (data.empty()) return Error(Code::kBadInput, "entry is empty");
  if (data.size() > config_.entry_bytes_max) {
    return Error(Code::kBadInput, "entry must have at most " +
                                      std::to_string(config_.entry_bytes_max) + " bytes, has " +
                                      std::to_string(data.size()));
  }
  if (last_index() - commit_ >= config_.uncommitted_max) {
    return Error(Code::kUnavailable,
                 "too many entries uncommitted: " + std::to_string(last_index() - commit_));
  }
  append_own(std::move(data));
  return last_index();
}

void Raft::append_own(Bytes data) {
  log_.push_back({last_index() + 1, hard_.term, std::move(data)});
  if (has(RaftBug::kSelfAckEarly)) advance_commit();
  send_appends(/*heartbeat=*/false);
}

// A heartbeat goes to everybody, with entries only if none are under way; otherwise only those get
// one that lack entries and wait for no answer.
void Raft::send_appends(bool heartbeat) {
  for (std::uint32_t to = 0; to < config_.size; ++to) {
    if (to == config_.self) continue;
    const Peer& peer = peers_[to];
    const bool lacks = peer.next <= last_index() && !peer.awaiting;
    if (heartbeat || lacks) send_append(to, /*with_entries=*/lacks);
  }
}

void Raft::send_append(std::uint32_t to, bool with_entries) {
  Peer& peer = peers_[to];
  RaftMessage m{RaftKind::kAppend, config_.self, to, hard_.term};
  m.last_index = peer.next - 1;
  m.last_term = term_at(m.last_index);
  m.commit = commit_;
  m.round = now_ms_;
  std::size_t bytes = 0;
  for (auto i = peer.next; with_entries && i <= last_index(); ++i) {
    const RaftEntry& e = log_[i - 1];
    if (m.entries.size() >= config_.batch_entries_max) break;
    if (!m.entries.empty() && bytes + e.data.size() > config_.batch_bytes_max) break;
    bytes += e.data.size();
    m.entries.push_back(e);
  }
  if (!m.entries.empty()) {
    peer.awaiting = true;
    peer.sent_ms = now_ms_;
  }
  messages_.push_back(std::move(m));
}

void Raft::advance_commit() {
  std::vector<std::uint64_t> copies;
  for (std::uint32_t i = 0; i < config_.size; ++i) {
    const auto own = has(RaftBug::kSelfAckEarly) ? last_index() : durable_;
    copies.push_back(i == config_.self ? own : peers_[i].match);
  }
  std::sort(copies.begin(), copies.end(), std::greater<>());
  const auto index = copies[quorum() - 1];
  if (index <= commit_) return;
  // An older term's entry can be on a majority and still be replaced; an own one cannot.
  if (term_at(index) != hard_.term && !has(RaftBug::kCommitOldTerm)) return;
  commit_ = index;
  send_appends(/*heartbeat=*/true);
}

void Raft::store(const std::vector<RaftEntry>& entries) {
  if (entries.empty()) return;
  if (entries.front().index <= last_index()) truncate_from(entries.front().index);
  log_.insert(log_.end(), entries.begin(), entries.end());
}

void Raft::truncate_from(std::uint64_t index) {
  STARLING_CHECK(index > commit_);
  if (index > last_index()) return;
  log_.resize(index - 1);
  durable_ = std::min(durable_, index - 1);
  saving_to_ = std::min(saving_to_, index - 1);
  unsaved_from_ = std::min(unsaved_from_, index);
}

// ---- Storage ----------------------------------------------------------------------------------

bool Raft::has_ready() const {
  return hard_changed_ || unsaved_from_ <= last_index() || !messages_.empty() ||
         handed_out_ < commit_;
}

Ready Raft::take_ready() {
  STARLING_CHECK(!saving_);
  Ready ready;
  if (std::exchange(hard_changed_, false)) ready.hard_state = hard_;
  ready.append.assign(log_.begin() + static_cast<std::ptrdiff_t>(unsaved_from_ - 1), log_.end());
  ready.messages = std::exchange(messages_, {});
  ready.committed.assign(log_.begin() + static_cast<std::ptrdiff_t>(handed_out_),
                         log_.begin() + static_cast<std::ptrdiff_t>(commit_));
  handed_out_ = commit_;
  unsaved_from_ = last_index() + 1;
  saving_ = true;
  saving_hard_ = hard_;
  saving_to_ = last_index();
  return ready;
}

void Raft::persisted() {
  STARLING_CHECK(saving_);
  saving_ = false;
  durable_hard_ = saving_hard_;
  durable_ = std::max(durable_, saving_to_);
  if (role_ == RaftRole::kCandidate && durable_hard_ == hard_ && !votes_[config_.self]) {
    return count_vote(config_.self);
  }
  if (role_ == RaftRole::kLeader) advance_commit();
}

bool Raft::leads_with_own_entry_committed() const {
  return role_ == RaftRole::kLeader && handed_out_ >= own_first_;
}

// ---- Questions --------------------------------------------------------------------------------

std::uint32_t Raft::quorum() const {
  const auto majority = config_.size / 2 + 1;
  return has(RaftBug::kQuorumTooSmall) ? std::max(majority - 1, 1u) : majority;
}

bool Raft::up_to_date(const RaftMessage& m) const {
  if (has(RaftBug::kVoteForAnyLog)) return true;
  const auto own_term = term_at(last_index());
  return m.last_term > own_term || (m.last_term == own_term && m.last_index >= last_index());
}

bool Raft::hears_leader() const {
  if (has(RaftBug::kNoStickiness)) return false;
  if (role_ == RaftRole::kLeader) return in_quorum_contact();
  return leader_ && now_ms_ - heard_ms_ < config_.election_ms;
}

bool Raft::in_quorum_contact() const {
  return now_ms_ - contact_of_quorum_ms() < config_.election_ms;
}

std::uint64_t Raft::contact_of_quorum_ms() const {
  std::vector<std::uint64_t> contacts;
  for (std::uint32_t i = 0; i < config_.size; ++i) {
    contacts.push_back(i == config_.self ? now_ms_ : peers_[i].contact_ms);
  }
  std::sort(contacts.begin(), contacts.end(), std::greater<>());
  return contacts[quorum() - 1];
}

std::uint64_t Raft::term_at(std::uint64_t index) const {
  STARLING_CHECK(index <= last_index());
  return index == 0 ? 0 : log_[index - 1].term;
}

// The last index at or below `index` whose term is at most `term`: nothing between can be equal in
// a log that has `term` at `index`. One step back per term, not per entry.
std::uint64_t Raft::search_back(std::uint64_t index, std::uint64_t term) const {
  index = std::min(index, last_index());
  while (index > 0 && term_at(index) > term) --index;
  return index;
}

}  // namespace starling::elastic
