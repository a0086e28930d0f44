// The rules, checked from outside.

#include <algorithm>
#include <functional>

#include "tests/elastic/raft_world.h"

namespace starling::elastic {

namespace {

std::pair<std::uint64_t, std::uint64_t> last_of(const std::vector<RaftEntry>& log) {
  return log.empty() ? std::pair<std::uint64_t, std::uint64_t>{0, 0}
                     : std::pair{log.back().term, log.back().index};
}

bool holds(const std::vector<RaftEntry>& log, const RaftEntry& e) {
  return log.size() >= e.index && log[e.index - 1] == e;
}

}  // namespace

// What a snapshot covers is committed, so the world knows it.
const RaftEntry& RaftWorld::entry_of(const Raft& raft, std::uint64_t index) const {
  const auto base = raft.snapshot().index;
  return index <= base ? committed_[index - 1] : raft.log()[index - base - 1];
}

bool RaftWorld::raft_holds(const Raft& raft, const RaftEntry& e) const {
  return raft.last_index() >= e.index && entry_of(raft, e.index) == e;
}

void RaftWorld::check_member(std::uint32_t i, const RaftMessage* delivered) {
  if (!violation_.empty()) return;
  Member& m = members_[i];
  const Raft& raft = *m.raft;
  if (raft.term() < m.hard.term) return fail("I11: term falls", i);
  if (m.was_lost && !raft.hard_state().lost) {
    m.was_lost = false;
    m.spent = raft.term();
  }
  check_vote(i, raft.term(), raft.hard_state().vote);
  check_log(i);
  check_leader(i);
  check_commit(i, delivered);
  check_change(i);
  if (raft.term() > m.hard.term) m.heard.reset();
  const bool leads =
      delivered && (delivered->kind == RaftKind::kAppend || delivered->kind == RaftKind::kSnapshot);
  if (leads && !raft.hard_state().lost && delivered->term == raft.term()) {
    m.heard = {delivered->from, clock_of(m)};
  }
  m.role = raft.role();
  m.hard = raft.hard_state();
  m.commit = raft.commit_index();
}

// I2: in a term one vote, which is never changed nor forgotten.
void RaftWorld::check_vote(std::uint32_t i, std::uint64_t term, std::optional<std::uint32_t> vote) {
  const auto found = vote_of_.find({i, term});
  if (found != vote_of_.end() && members_[i].raft && members_[i].hard.term == term &&
      members_[i].hard.vote && members_[i].hard.vote != vote) {
    return fail("I2: vote of the term changed or forgotten", i);
  }
  // A vote binds from when it is durable: a crash may void it before.
  const HardState& durable = members_[i].disk.hard;
  if (durable.term != term || !durable.vote) return;
  if (durable.term == members_[i].spent && durable.vote == i) return;  // it has none to give
  if (found == vote_of_.end()) {
    vote_of_[{i, term}] = *durable.vote;
  } else if (found->second != *durable.vote) {
    fail("I2: second vote in a term", i);
  }
}

// I3, I4, and the promise of acknowledged entries within a term.
void RaftWorld::check_log(std::uint32_t i) {
  Member& m = members_[i];
  const Raft& raft = *m.raft;
  const std::uint64_t size = raft.last_index();
  const bool led = m.role == RaftRole::kLeader && m.hard.term == m.raft->term();
  if (led && size < m.log.size()) return fail("I3: leader cut its log", i);
  // The whole log now and then and when its end differs; else what is new.
  const auto common = std::min<std::size_t>(size, m.log.size());
  const bool grew = common == m.log.size() && common > 0 && entry_of(raft, common) == m.log.back();
  std::size_t same = grew && events_ % 64 != 0 ? common : 0;
  while (same < common && entry_of(raft, same + 1) == m.log[same]) ++same;
  if (led && same < m.log.size()) return fail("I3: leader rewrote its log", i);
  for (auto k = same; k < size; ++k) {
    const auto before = k == 0 ? 0 : entry_of(raft, k).term;
    const RaftEntry& e = entry_of(raft, k + 1);
    if (e.index != k + 1 || e.term < before) return fail("I4: log out of order", i);
    const auto [at, fresh] = entries_.try_emplace({e.index, e.term}, e, before);
    if (!fresh && at->second != std::pair(e, before)) {
      return fail("I4: same index and term, other history", i);
    }
  }
  if (same < m.log.size() || same < size) {
    m.log.resize(same);
    for (auto k = same; k < size; ++k) m.log.push_back(entry_of(raft, k + 1));
  }
  if (m.acked.first == m.raft->term() && size < m.acked.second) {
    fail("I10: acknowledged entries are gone within the term", i);
  }
}

// I1, I5, and that who leads has a durable vote for itself (I10).
void RaftWorld::check_leader(std::uint32_t i) {
  Member& m = members_[i];
  const Raft& raft = *m.raft;
  if (raft.role() != RaftRole::kLeader) return;
  if (m.role == RaftRole::kLeader && m.hard.term == raft.term()) return;
  const auto [at, fresh] = leader_of_.try_emplace(raft.term(), i);
  if (!fresh && at->second != i) return fail("I1: two leaders in a term", i);
  if (!fresh) return fail("I1: leads a term twice", i);
  if (m.disk.hard.term != raft.term() || m.disk.hard.vote != i)
    return fail("I10: leads before its vote is safe", i);
  // A late vote may make a leader of an older term, which lacks what was committed after it and
  // commits nothing any more.
  for (std::size_t k = 0; k < committed_.size(); ++k)
    if (committed_in_[k] < raft.term() && !raft_holds(raft, committed_[k]))
      return fail("I5: leader lacks a committed entry", i);
  m.contact.assign(members_.size(), clock_of(m));
  if (joiner_ || replaced_) push(now_ + random(5), What::kAsk, i);  // the operator asks at once
}

// I7, I8, I9, I12.
void RaftWorld::check_commit(std::uint32_t i, const RaftMessage* delivered) {
  Member& m = members_[i];
  const Raft& raft = *m.raft;
  const auto commit = raft.commit_index();
  if (commit < m.commit) return fail("I7: commit falls", i);
  if (commit > raft.last_index()) return fail("I7: commit beyond the log", i);
  if (commit == m.commit) return;
  const RaftEntry& e = entry_of(raft, std::min(commit, raft.last_index()));
  if (raft.role() == RaftRole::kLeader) {
    if (e.term != raft.term()) return fail("I8: older term committed by counting", i);
  } else {
    const bool append = delivered && delivered->kind == RaftKind::kAppend;
    const bool snapshot = delivered && delivered->kind == RaftKind::kSnapshot;
    if (!append && !snapshot) return fail("I9: follower commits without an append", i);
    const auto verified =
        append ? delivered->last_index + delivered->entries.size() : delivered->last_index;
    if (commit > (append ? std::min(delivered->commit, verified) : verified)) {
      return fail("I9: follower commits what was not verified", i);
    }
  }
  for (auto index = m.commit + 1; index <= commit; ++index) {
    if (index <= raft.snapshot().index) continue;  // the leader's, which the world knows
    const RaftEntry& own = entry_of(raft, index);
    if (index <= committed_.size()) {
      if (committed_[index - 1] != own) return fail("I6: two entries committed at one index", i);
      continue;
    }
    committed_.push_back(own);
    committed_in_.push_back(raft.term());
    committed_by_.push_back(m.group.voters);  // it may have changed the group since
    if (own.members) ++changes_;
    check_durable_quorum(index);
  }
}

// I12: each committed entry is in what would survive at a majority, of the voters that were counted or of those by now;
// members count that have lost their log and do not vote before they have it again.
void RaftWorld::check_durable_quorum(std::uint64_t from_index) {
  const auto now = voters();
  for (auto index = from_index; index <= committed_.size(); ++index) {
    const auto is_at_majority = [&](const std::vector<std::uint32_t>& group) {
      const auto copies = std::count_if(group.begin(), group.end(), [&](std::uint32_t place) {
        const Disk& disk = members_[place].disk;
        const bool asks = disk.hard.lost || disk.hard.floor != LogPosition{};
        return asks || holds(disk.log, committed_[index - 1]);
      });
      return static_cast<std::size_t>(copies) > group.size() / 2;
    };
    if (!is_at_majority(committed_by_[index - 1]) && !is_at_majority(now))
      return fail("I12: committed entry is not durable at a majority", 0);
  }
}

// I10: every claim that leaves a member is true of its disk.
void RaftWorld::check_send(std::uint32_t i, const RaftMessage& m) {
  Member& member = members_[i];
  const Disk& disk = member.disk;
  switch (m.kind) {
    case RaftKind::kVote:
      if (disk.hard.term != m.term || disk.hard.vote != i)
        fail("I10: asks for votes before its own is safe", i);
      return;
    case RaftKind::kVoteReply:
      if (m.granted && (disk.hard.term != m.term || disk.hard.vote != m.to))
        fail("I10: grant is not durable", i);
      return;
    case RaftKind::kPreVoteReply:
      if (m.granted && pre_grants_[{i, m.to, m.round}]-- <= 0) {
        fail("I20: pre-vote granted that must be refused", i);
      }
      return;
    case RaftKind::kAppend:
    case RaftKind::kSnapshot:
    case RaftKind::kElect:
      if (leader_of_[m.term] != i) fail("I1: append of another's term", i);
      return;
    case RaftKind::kAppendReply: {
      if (!m.granted) return;
      if (disk.log.size() < m.match) return fail("I10: acknowledges what is not durable", i);
      const Member& leader = members_[m.to];
      const bool leads = leader.raft && leader.raft->role() == RaftRole::kLeader;
      if (leads && leader.raft->term() == m.term && m.match > 0 &&
          !raft_holds(*leader.raft, disk.log[m.match - 1])) {
        return fail("I10: acknowledges what differs from the leader's", i);
      }
      const auto more = member.acked.first == m.term ? member.acked.second : 0;
      member.acked = {m.term, std::max(more, m.match)};
      return;
    }
    default:
      return;
  }
}

// I6: in order, each once, the same everywhere.
void RaftWorld::check_applied(std::uint32_t i, const std::vector<RaftEntry>& committed) {
  if (!violation_.empty()) return;
  Member& m = members_[i];
  for (const RaftEntry& e : committed) {
    if (e.index != m.applied + 1) return fail("I6: applied out of order", i);
    if (e.index > committed_.size() || committed_[e.index - 1] != e) {
      return fail("I6: applied what is not committed", i);
    }
    if (!holds(m.disk.log, e)) return fail("I10: applied before it is durable here", i);
    m.applied = e.index;
  }
  // R10: the leader's own mark agrees with what it was given.
  const Raft& raft = *m.raft;
  if (raft.leads_with_own_entry_committed() && !m.saving) {
    const bool own = m.applied > 0 && committed_[m.applied - 1].term == raft.term();
    if (!own) fail("R10: leads without an own entry applied", i);
  }
}

// I20: a leader that a majority has not answered for T does not lead on. Only what it sent in the
// last T counts.
void RaftWorld::check_contact(std::uint32_t i) {
  Member& m = members_[i];
  if (!violation_.empty() || m.raft->role() != RaftRole::kLeader) return;
  std::vector<std::uint64_t> contact;
  for (const std::uint32_t place : m.raft->members().voters)
    contact.push_back(place == i ? clock_of(m) : m.contact[place]);
  std::sort(contact.begin(), contact.end(), std::greater<>());
  if (clock_of(m) - contact[contact.size() / 2] >= m.raft->patience_ms()) {
    fail("I20: leads on without its group", i);
  }
}

// By logs, and by whether the receiver heard its leader lately.
bool RaftWorld::must_refuse(std::uint32_t i, const RaftMessage& m) const {
  const Member& member = members_[i];
  if (m.kind != RaftKind::kPreVote && m.kind != RaftKind::kVote) return false;
  if (std::pair(m.last_term, m.last_index) < last_of(member.log)) return true;
  if (m.kind == RaftKind::kVote && m.granted) return false;  // its leader has asked for it
  const bool follows = member.role == RaftRole::kFollower && member.heard;
  return follows && member.heard->first != m.from &&
         clock_of(member) - member.heard->second < config_.election_ms;
}

}  // namespace starling::elastic
