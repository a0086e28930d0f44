#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/wire/raft_members.h"
#include "elastic/raft/raft.h"

// Brings members back that the log alone cannot help: snapshots for one that is far behind, and the
// questions of one that has lost its log.

namespace starling::elastic {

// ---- Snapshots --------------------------------------------------------------------------------

void Raft::compact(Bytes data) {
  STARLING_CHECK(!saving_);
  STARLING_CHECK(!data.empty() && data.size() <= config_.snapshot_bytes_max);
  // A snapshot of the leader's that is not handed out yet goes further than the caller's state.
  if (restored_ || handed_out_ == snapshot_.index) return;
  if (config_.bug == RaftBug::kNone) STARLING_CHECK(durable_ >= handed_out_);
  RaftSnapshot next{handed_out_, term_at(handed_out_),
                    std::make_shared<const Bytes>(std::move(data)), members_at(handed_out_)};
  drop_log_to(next.index);
  snapshot_ = std::move(next);
  snapshot_changed_ = true;
  check_invariants();
}

// Call it before snapshot_ changes, as entries are found by its index.
void Raft::drop_log_to(std::uint64_t index) {
  const auto dropped = log_.begin() + static_cast<std::ptrdiff_t>(index - snapshot_.index);
  for (auto e = log_.begin(); e != dropped; ++e) log_bytes_ -= e->data.size();
  log_.erase(log_.begin(), dropped);
}

// The snapshot is also the leader's heartbeat for such a peer, so it is sent again and again.
void Raft::send_snapshot(std::uint32_t to) {
  Peer& peer = peers_.at(to);
  if (peer.snapshot_index != snapshot_.index) {
    peer.snapshot_index = snapshot_.index;
    peer.snapshot_bytes = 0;
  }
  const Bytes& all = *snapshot_.data;
  const auto from = std::min<std::uint64_t>(peer.snapshot_bytes, all.size());
  const auto count = std::min<std::uint64_t>(config_.piece_bytes, all.size() - from);
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(from);
  RaftMessage m{RaftKind::kSnapshot, config_.self, to, hard_.term};
  m.last_index = snapshot_.index;
  m.last_term = snapshot_.term;
  m.commit = all.size();
  m.match = from;
  m.round = now_ms_;
  m.entries.push_back({snapshot_.index, snapshot_.term,
                       Bytes(begin, begin + static_cast<std::ptrdiff_t>(count)),
                       snapshot_.members});
  peer.awaiting = true;
  peer.sent_ms = now_ms_;
  messages_.push_back(std::move(m));
}

bool Raft::piece_well_formed(const RaftMessage& m) const {
  if (m.last_index == 0 || m.entries.size() != 1) return false;
  if (m.entries[0].index != m.last_index || m.entries[0].term != m.last_term) return false;
  if (m.commit == 0 || m.commit > config_.snapshot_bytes_max) return false;
  if (m.entries[0].members && !is_group(*m.entries[0].members)) return false;
  return m.match <= m.commit && m.entries[0].data.size() <= m.commit - m.match;
}

void Raft::on_snapshot(const RaftMessage& m) {
  if (!hears(m)) return;
  if (m.last_index <= commit_) {  // it is here already, as entries or in a snapshot of our own
    incoming_.reset();
    answer(m, RaftKind::kAppendReply, hard_.term, true);
    messages_.back().match = m.last_index;
    return;
  }
  const bool goes_on = incoming_ && incoming_->of_term == m.term &&
                       incoming_->index == m.last_index && incoming_->term == m.last_term &&
                       incoming_->total == m.commit;
  if (!goes_on)
    incoming_ = Incoming{m.term, m.last_index, m.last_term, m.commit, {}, m.entries[0].members};
  Bytes& data = incoming_->data;
  const Bytes& piece = m.entries[0].data;
  if (m.match == data.size()) data.insert(data.end(), piece.begin(), piece.end());
  if (data.size() < incoming_->total) {
    answer(m, RaftKind::kSnapshotReply, hard_.term, true);
    messages_.back().last_index = m.last_index;
    messages_.back().match = data.size();
    return;
  }
  install(std::move(*std::exchange(incoming_, std::nullopt)));
  answer(m, RaftKind::kAppendReply, hard_.term, true);
  messages_.back().match = m.last_index;
}

// Installs a snapshot: all in it is committed. Later own entries stay if they are of that history.
void Raft::install(Incoming incoming) {
  const bool same_history =
      incoming.index <= last_index() && term_at(incoming.index) == incoming.term;
  if (same_history) {
    drop_log_to(incoming.index);
  } else {
    log_.clear();
    log_bytes_ = 0;
  }
  snapshot_ = {incoming.index, incoming.term,
               std::make_shared<const Bytes>(std::move(incoming.data)),
               std::move(incoming.members)};
  find_members();
  snapshot_changed_ = restored_ = true;
  commit_ = handed_out_ = snapshot_.index;
  durable_ = std::min(durable_, last_index());
  saving_to_ = std::min(saving_to_, last_index());
  unsaved_from_ = snapshot_.index + 1;
}

void Raft::on_snapshot_reply(const RaftMessage& m) {
  Peer* peer = answering(m);
  if (!peer) return;
  peer->contact_ms = std::max(peer->contact_ms, m.round);
  if (peer->next > snapshot_.index || m.last_index != peer->snapshot_index) return;
  const bool further = m.match > peer->snapshot_bytes;
  const bool fell_back = m.match < peer->snapshot_bytes && m.round > peer->snapshot_ms;
  if (!further && !fell_back) return;  // doubled, or the answer to a heartbeat
  peer->snapshot_bytes = m.match;
  peer->snapshot_ms = now_ms_;
  send_append(m.from, /*with_entries=*/true);
}

// ---- A log that was lost ----------------------------------------------------------------------
//
// A member may have promised with a log that is gone: a vote in some term, not to follow a leader
// of an older term, and to have entries of some leader durable. Only a candidate or leader of that
// term could still use such a promise. It is among the others, and it had that term, and those
// entries, before the promise was asked for. So the member asks every other one, in a round that no
// earlier life used, and
//   - a member that has its log answers with its term and the position up to which it promised
//     entries. Above all these terms nothing was promised, and no log that was lost went further
//     than the highest of these positions where it mattered: an entry that was or may yet be
//     committed is, or will be, with a majority, hence with one that answers.
//   - a member that has lost its log as well says so: its candidacies and leaderships are over (a
//     vote names the life that asked).
// With a majority of the group among the former, this member goes on in the highest of these terms,
// with its vote in it spent, and with that highest position as its floor: it votes for no candidate
// with less, and is none itself, before its own log goes that far. All this rests on knowing every
// other member, so it holds for a group with the members that began it: in one that has changed, such
// a member stays silent, and is replaced.

void Raft::ask_all() {
  reset_election_timer();
  for (std::uint32_t to = 0; to < config_.size; ++to) {
    const auto known = answers_.find(to);
    // An entry that changed the group may be replaced before it is committed.
    const bool settled = known != answers_.end() && known->second.whole && !known->second.changed;
    if (to == config_.self || settled) continue;
    RaftMessage m{RaftKind::kRecall, config_.self, to, /*term=*/0};
    m.round = try_;
    messages_.push_back(std::move(m));
  }
}

void Raft::on_recall(const RaftMessage& m) {
  answer(m, RaftKind::kRecallReply, hard_.term, !hard_.lost);
  const LogPosition last = promised_position();
  messages_.back().last_index = last.index;
  messages_.back().last_term = last.term;
  messages_.back().match = members_index_;
  if (hard_.lost) asked_.insert(m.from);
  const auto asks = peers_.find(m.from);
  if (asks == peers_.end()) return;
  // The peer no longer has what its earlier life acknowledged.
  Peer& peer = asks->second;
  Peer unknown;
  unknown.next = last_index() + 1;
  unknown.contact_ms = peer.contact_ms;
  unknown.since_ms = now_ms_ + 1;
  peer = unknown;
}

void Raft::on_recall_reply(const RaftMessage& m) {
  if (!hard_.lost || m.round != try_ || m.last_term > m.term || m.from >= config_.size) return;
  const bool changed = m.granted && m.match != 0 && !has(RaftBug::kRecallsChanged);
  const auto known = answers_.find(m.from);
  if (known != answers_.end() && known->second.whole && !known->second.changed) return;
  answers_[m.from] = Answer{m.granted, changed, m.term, {m.last_term, m.last_index}};
  const Recalled recalled = this->recalled();
  if (recalled.changed) return;
  if (recalled.answers == config_.size - 1 && recalled.whole >= quorum()) know_promises();
}

void Raft::know_promises() {
  HardState known;
  for (const auto& [from, answer] : answers_) {
    if (!answer.whole) continue;
    known.term = std::max(known.term, answer.term);
    known.floor = std::max(known.floor, answer.last);
  }
  if (known.term != 0) known.vote = config_.self;  // spent: it is no candidate of that term
  hard_ = known;
  hard_changed_ = true;
  reset_election_timer();
}

Recalled Raft::recalled() const {
  Recalled recalled;
  recalled.changed = heard_later_member_ && !has(RaftBug::kRecallsChanged);
  for (std::uint32_t from = 0; from < config_.size; ++from) {
    const auto answer = answers_.find(from);
    const bool answered = answer != answers_.end();
    if (answered) ++recalled.answers;
    if (answered && answer->second.changed) recalled.changed = true;
    if (answered && answer->second.whole)
      ++recalled.whole;
    else if (answered || asked_.contains(from))
      ++recalled.lost;
  }
  return recalled;
}

}  // namespace starling::elastic
