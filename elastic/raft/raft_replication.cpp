#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "elastic/raft/raft.h"

// Replicates entries from the leader to the others, and commits them.

namespace starling::elastic {

// Whether the sender of an append or a snapshot's piece is the leader that this member now follows.
bool Raft::hears(const RaftMessage& m) {
  if (m.term < hard_.term) {
    if (followed_ == m.from) note_late(now_ms_ - followed_ms_);
    answer(m, RaftKind::kAppendReply, hard_.term, false);
    return false;
  }
  if (m.term == hard_.term && leader_ && *leader_ != m.from) return false;  // impossible
  const bool same = m.term == hard_.term && leader_ == m.from;
  if (same && now_ms_ - heard_ms_ > config_.heartbeat_ms)
    note_late(now_ms_ - heard_ms_ - config_.heartbeat_ms);
  if (!same) follow(m.term, m.from);
  heard_ms_ = now_ms_;
  reset_election_timer();
  return true;
}

void Raft::on_append(const RaftMessage& m) {
  if (!hears(m)) return;
  // Entries that the snapshot covers are committed, hence the same at the leader.
  const bool covered = m.last_index < snapshot_.index;
  if (!covered && (m.last_index > last_index() || term_at(m.last_index) != m.last_term)) {
    answer(m, RaftKind::kAppendReply, hard_.term, false);
    RaftMessage& reply = messages_.back();
    reply.last_index = m.last_index;
    reply.match = search_back(std::min(m.last_index, last_index()), m.last_term);
    reply.last_term = term_at(reply.match);
    return;
  }
  const auto conflict = std::find_if(m.entries.begin(), m.entries.end(), [&](const RaftEntry& e) {
    if (e.index <= snapshot_.index) return false;
    return e.index > last_index() || term_at(e.index) != e.term;
  });
  // A conflict with what is committed cannot come from a leader of this group.
  if (conflict != m.entries.end() && conflict->index <= commit_) return;
  store({conflict, m.entries.end()});
  if (has(RaftBug::kTruncateAlways)) {
    truncate_from(std::max(m.last_index + m.entries.size(), commit_) + 1);
  }

  // The log may still hold entries beyond `verified` that the leader does not have.
  const auto verified = m.last_index + m.entries.size();
  const auto bound = has(RaftBug::kCommitUnverified) ? last_index() : verified;
  commit_ = std::max(commit_, std::min(m.commit, bound));
  incoming_.reset();
  answer(m, RaftKind::kAppendReply, hard_.term, true);
  messages_.back().match = verified;
}

void Raft::on_append_reply(const RaftMessage& m) {
  Peer* answered = answering(m);
  if (!answered) return;
  if (!m.granted) return on_append_refused(m);
  Peer& peer = *answered;
  peer.contact_ms = std::max(peer.contact_ms, m.round);
  if (m.match > last_index()) return;
  peer.matched_ms = std::max(peer.matched_ms, m.round);
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
  review_change();
  if (!peers_.contains(m.from)) return;  // it was taken out
  if (!peer.awaiting && peer.next <= last_index()) {
    send_append(m.from, /*with_entries=*/true);
  } else if (peer.match > verified && commit_ == committed && commit_ > verified) {
    // Others made the commit; when this peer was told, it could not yet follow.
    send_append(m.from, /*with_entries=*/false);
  }
}

// A refusal counts as contact only if it brings the peer's log nearer to ours: a leader that all
// peers refuse for ever must not lead on.
void Raft::on_append_refused(const RaftMessage& m) {
  Peer& peer = peers_.at(m.from);
  if (has(RaftBug::kMatchFromReject)) {
    peer.match = std::max(peer.match, std::min(m.match, last_index()));
    advance_commit();
  }
  if (m.last_index <= peer.match) {
    if (m.round <= peer.matched_ms) return;  // a late answer to an earlier search
    peer.match = 0;  // it acknowledged this entry before and no longer has it: begin anew
  }
  if (m.last_index + 1 != peer.next) return;
  peer.contact_ms = std::max(peer.contact_ms, m.round);
  // The terms of entries in the own snapshot are not known; such a peer is sent the snapshot.
  const auto before = std::min(m.match, m.last_index - 1);
  const auto hint = before < snapshot_.index ? before : search_back(before, m.last_term);
  peer.next = std::max(hint, peer.match) + 1;
  send_append(m.from, /*with_entries=*/true);
}

// The peer that answers something that this leadership sent to its present life, else null.
Raft::Peer* Raft::answering(const RaftMessage& m) {
  if (m.term > hard_.term) {
    follow(m.term, {});
    return nullptr;
  }
  if (m.term != hard_.term || role_ != RaftRole::kLeader) return nullptr;
  const auto peer = peers_.find(m.from);
  if (peer == peers_.end()) return nullptr;  // it was taken out
  const bool of_this_life = m.round >= peer->second.since_ms && m.round <= now_ms_;
  if (!of_this_life) return nullptr;
  note_late(now_ms_ - m.round);
  return &peer->second;
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
  check_invariants();
  return last_index();
}

void Raft::append_own(Bytes data) {
  log_bytes_ += data.size();
  log_.push_back({last_index() + 1, hard_.term, std::move(data)});
  if (has(RaftBug::kSelfAckEarly)) advance_commit();
  send_appends(/*heartbeat=*/false);
}

// A heartbeat goes to all peers, with entries only if none are under way; otherwise only those get
// one that lack entries and wait for no answer.
void Raft::send_appends(bool heartbeat) {
  for_others([&](std::uint32_t to) {
    const Peer& peer = peers_.at(to);
    const bool lacks = peer.next <= last_index() && !peer.awaiting;
    if (heartbeat || lacks) send_append(to, /*with_entries=*/lacks);
  });
}

void Raft::send_append(std::uint32_t to, bool with_entries) {
  Peer& peer = peers_.at(to);
  if (peer.next <= snapshot_.index) return send_snapshot(to);
  RaftMessage m{RaftKind::kAppend, config_.self, to, hard_.term};
  m.last_index = peer.next - 1;
  m.last_term = term_at(m.last_index);
  m.commit = commit_;
  m.round = now_ms_;
  std::size_t bytes = 0;
  for (auto i = peer.next; with_entries && i <= last_index(); ++i) {
    const RaftEntry& e = entry(i);
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
  for (const std::uint32_t place : members_.voters) {
    const auto own = has(RaftBug::kSelfAckEarly) ? last_index() : durable_;
    copies.push_back(place == config_.self ? own : peers_.at(place).match);
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
  for (const RaftEntry& e : entries) log_bytes_ += e.data.size();
  find_members();
}

void Raft::truncate_from(std::uint64_t index) {
  STARLING_CHECK(index > commit_);
  if (index > last_index()) return;
  for (auto i = index; i <= last_index(); ++i) log_bytes_ -= entry(i).data.size();
  log_.resize(index - snapshot_.index - 1);
  if (members_index_ >= index) find_members();
  durable_ = std::min(durable_, index - 1);
  saving_to_ = std::min(saving_to_, index - 1);
  unsaved_from_ = std::min(unsaved_from_, index);
}

}  // namespace starling::elastic
