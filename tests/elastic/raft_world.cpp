#include "tests/elastic/raft_world.h"

#include <algorithm>

namespace starling::elastic {

// Each class of fault is off in half of the schedules (swarm): faults can hide each other.
RaftWorld::RaftWorld(std::uint64_t seed, RaftBug bug) : seed_(mix64(seed)), bug_(bug) {
  constexpr std::uint32_t kSizes[] = {1, 2, 3, 3, 3, 3, 4, 5, 5, 5};
  founders_ = kSizes[random(10)];
  members_.resize(founders_);
  const auto draw = [&](std::uint64_t most) { return chance(50) ? 0 : 1 + random(most); };
  loss_percent_ = draw(30);
  double_percent_ = draw(50);
  delay_ms_ = 1 + draw(chance(20) ? 5 * kElection : kElection / 2);
  crash_percent_ = draw(40);
  partition_percent_ = draw(60);
  pause_percent_ = draw(20);
  wipe_percent_ = draw(60);
  compact_percent_ = draw(30);
  change_percent_ = draw(80);
  config_.size = founders_;
  config_.election_ms = kElection;
  config_.heartbeat_ms = 20 + random(30);
  config_.batch_entries_max = 1 + random(4);
  config_.piece_bytes = 300 + random(2000);
  config_.bug = bug;
  const bool drift = chance(50);
  for (std::uint32_t i = 0; i < config_.size; ++i) {
    if (drift) members_[i].clock_percent = 90 + random(21);
    members_[i].disk_ms = 1 + draw(20);
    push(random(20), What::kRestart, i);
  }
  push(10, What::kFault, 0);
  push(10, What::kPropose, 0);
  if (change_percent_ > 0) push(kElection, What::kChange, 0);
  push(kFaultsUntil, What::kHeal, 0);
}

void RaftWorld::run() {
  // A member waits for up to twice ten timeouts where others were late.
  run_until(kFaultsUntil + 50 * kElection);
  if (!violation_.empty()) return;
  // L1: with all links and members up, one leader within fifty timeouts, and it stays.
  const auto before = leader_of_.size();
  const auto committed = committed_.size();
  run_until(now_ + 10 * kElection);
  if (!violation_.empty()) return;
  if (leader_of_.size() != before) fail("L1: leadership moves although nothing fails", 0);
  if (committed_.size() <= committed) fail("L1: nothing is committed although nothing fails", 0);
  check_agreement(committed);
}

// `committed`: how much was, ten timeouts ago. One that is being sent a snapshot is a while behind.
void RaftWorld::check_agreement(std::size_t committed) {
  std::uint32_t leading = 0;
  const auto now = voters();
  for (const std::uint32_t i : now) {
    const Member& m = members_[i];
    // A group that has changed goes on without the ones that it has lost, until they are taken out.
    if (m.gone || (changed() && m.disk.hard.lost)) continue;
    if (!m.raft) return fail("L1: member did not come back", i);
    if (m.raft->role() == RaftRole::kLeader) {
      ++leading;
      if (!m.raft->leads_with_own_entry_committed()) fail("R10: leader without own entry", i);
    }
    if (m.applied < committed) fail("L1: member stays behind", i);
    if (!m.raft->whole()) fail("L1: a lost log is not repaired", i);
  }
  if (leading != 1) fail("L1: not one leader", leading);
  for (std::uint32_t i = 0; i < members_.size(); ++i) {
    const bool leads = members_[i].raft && members_[i].raft->role() == RaftRole::kLeader;
    if (leads && std::find(now.begin(), now.end(), i) == now.end())
      fail("M3: leads without being a member", i);
  }
  if (joiner_ && std::find(now.begin(), now.end(), *joiner_) == now.end())
    fail("M4: asks and does not become a member", *joiner_);
  if (replaced_ && std::find(now.begin(), now.end(), *replaced_) != now.end())
    fail("M4: a member that is to leave stays", *replaced_);
}

void RaftWorld::fail(const std::string& rule, std::uint32_t member) {
  if (!violation_.empty()) return;
  violation_ = rule + " (member " + std::to_string(member) + " of " +
               std::to_string(members_.size()) + ", at " + std::to_string(now_) + " ms, event " +
               std::to_string(events_) + ")";
}

void RaftWorld::push(std::uint64_t at, What what, std::uint32_t member, RaftMessage message) {
  queue_.push({at, order_++, what, member, members_[member].life, std::move(message)});
}

// ---- Events -----------------------------------------------------------------------------------

void RaftWorld::run_until(std::uint64_t end) {
  while (violation_.empty() && !queue_.empty() && queue_.top().at <= end) {
    const Event event = std::move(const_cast<Event&>(queue_.top()));  // popped at once
    queue_.pop();
    now_ = event.at;
    ++events_;
    handle(event);
  }
  now_ = std::max(now_, end);
}

void RaftWorld::handle(const Event& event) {
  const auto i = event.member;
  history_ = mix64(history_, mix64(event.at, static_cast<std::uint64_t>(event.what) * 8 + i));
  switch (event.what) {
    case What::kHeal:
      return heal();
    case What::kFault:
      return fault();
    case What::kPropose:
      return propose();
    case What::kChange:
      return change();
    case What::kAsk:
      return change_at(i);
    case What::kRestart:
      if (!members_[i].raft && !members_[i].gone) start(i);
      return;
    default:
      break;
  }
  Member& m = members_[i];
  if (!m.raft) return;
  // Messages outlive the life of their receiver; its timers and disk writes do not.
  if (event.what != What::kDeliver && event.life != m.life) return;
  if (now_ < m.paused_until) {
    Event later = event;
    later.at = m.paused_until;
    queue_.push(std::move(later));
    return;
  }
  tick(i);
  if (event.what == What::kDeliver) deliver(i, event.message);
  if (event.what == What::kSaved && violation_.empty()) saved(i);
  pump(i);
}

void RaftWorld::start(std::uint32_t i) {
  Member& m = members_[i];
  ++m.life;
  m.clock_offset = random(1000000);
  config_.self = i;
  config_.seed = mix64(seed_, m.life);
  const auto kept = m.disk.log.begin() + static_cast<std::ptrdiff_t>(m.disk.snapshot.index);
  m.raft.emplace(config_, m.disk.hard, std::vector<RaftEntry>(kept, m.disk.log.end()),
                 m.disk.snapshot);
  m.saving.reset();
  m.role = RaftRole::kFollower;
  m.hard = m.disk.hard;
  m.log = m.disk.log;
  m.commit = m.applied = m.disk.snapshot.index;
  m.group = m.raft->members();
  m.was_lost = m.raft->hard_state().lost;
  m.acked = {};
  m.heard.reset();
  tick(i);
  pump(i);
}

// Of what was being saved any prefix of its records survives.
void RaftWorld::crash(std::uint32_t i) {
  Member& m = members_[i];
  if (!m.raft) return;
  ++crashes_;
  if (m.saving) store(i, *m.saving, random(m.saving->append.size() + 3));
  m.raft.reset();
  m.saving.reset();
  check_durable_quorum(1);
  push(now_ + 1 + random(5 * kElection), What::kRestart, i);
}

// Comes back with an empty folder.
void RaftWorld::wipe(std::uint32_t i) {
  Member& m = members_[i];
  if (m.raft || m.gone || !may_wipe(i)) return;
  ++wipes_;
  m.disk = {};
  m.disk.hard.lost = true;
  m.spent = 0;
  // A candidacy that did not win ended with that life: answers to it count for no later one. So it binds nobody
  // else without a log to its vote either, and those with one never vote twice anyway.
  for (const auto& [vote, candidate] : vote_of_) {
    const auto& [voter, term] = vote;
    const auto led = leader_of_.find(term);
    const bool won = led != leader_of_.end() && led->second == i;
    if (voter == i && candidate == i && !won) over_.insert({i, term});
  }
  std::erase_if(vote_of_, [&](const auto& vote) {
    const auto& [voter, term] = vote.first;
    return over_.contains({vote.second, term}) && members_[voter].disk.hard.lost;
  });
}

void RaftWorld::fault() {
  if (calm_) return;
  push(now_ + 1 + random(3 * kElection), What::kFault, 0);
  const auto someone = static_cast<std::uint32_t>(random(members_.size()));
  if (chance(partition_percent_)) partition();
  if (chance(pause_percent_)) members_[someone].paused_until = now_ + random(4 * kElection);
  if (!chance(crash_percent_)) return;
  const auto kind = random(10);
  for (std::uint32_t i = 0; i < members_.size(); ++i) {
    const Member& m = members_[i];
    const bool leads = m.raft && m.raft->role() == RaftRole::kLeader;
    if (kind == 0 || (kind < 5 && leads) || (kind >= 5 && i == someone)) {
      crash(i);
      if (chance(wipe_percent_)) wipe(i);
    }
  }
}

void RaftWorld::partition() {
  cut_ = {};
  const auto n = members_.size();
  const auto kind = random(6);
  const auto one = random(n);
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) {
      if (kind == 1) cut_[a][b] = (a == one) != (b == one);  // one is alone
      if (kind == 2) cut_[a][b] = a == one;                  // one is not heard
      if (kind == 3) cut_[a][b] = b == one;                  // one does not hear
      if (kind == 4) cut_[a][b] = a % 2 != b % 2;
      if (kind == 5) cut_[a][b] = chance(30);
    }
  }
}

void RaftWorld::heal() {
  calm_ = true;
  cut_ = {};
  loss_percent_ = double_percent_ = 0;
  delay_ms_ = 2;
  for (Member& m : members_) {
    m.paused_until = 0;
    m.disk_ms = 1;
  }
}

void RaftWorld::propose() {
  push(now_ + 1 + random(40), What::kPropose, 0);
  for (std::uint32_t i = 0; i < members_.size(); ++i) {
    Member& m = members_[i];
    if (!m.raft || m.raft->role() != RaftRole::kLeader || now_ < m.paused_until) continue;
    tick(i);
    for (auto n = random(4); n > 0 && violation_.empty(); --n) {
      ByteWriter data;
      data.put(++proposals_);
      if (m.raft->propose(std::move(data).take())) check_member(i, nullptr);
    }
    pump(i);
  }
}

void RaftWorld::tick(std::uint32_t i) {
  Member& m = members_[i];
  m.raft->tick(clock_of(m));
  check_member(i, nullptr);
  check_contact(i);
}

void RaftWorld::deliver(std::uint32_t i, const RaftMessage& m) {
  if (!violation_.empty()) return;
  Member& member = members_[i];
  const bool refuse = must_refuse(i, m);
  const auto before = member.raft->hard_state();
  const auto timer = member.raft->next_deadline();
  // A late refusal may carry the round of an earlier life, which had another clock.
  const bool answer = (m.kind == RaftKind::kAppendReply || m.kind == RaftKind::kSnapshotReply) &&
                      m.round <= clock_of(member);
  if (answer && m.term == before.term && !member.contact.empty()) {
    auto& contact = member.contact[m.from];
    contact = std::max(contact, m.round);
  }
  member.raft->receive(m);
  const auto after = member.raft->hard_state();
  if (m.kind == RaftKind::kPreVote) {
    if (after != before) fail("I20: pre-vote changed term or vote", i);
    if (member.raft->next_deadline() != timer) fail("I20: pre-vote changed the timer", i);
    if (!refuse) ++pre_grants_[{i, m.from, m.round}];
  }
  if (m.kind == RaftKind::kVote && refuse && after != before && after.vote == m.from) {
    fail("I20, I5: vote granted that must be refused", i);
  }
  check_member(i, &m);
}

void RaftWorld::pump(std::uint32_t i) {
  Member& m = members_[i];
  while (violation_.empty() && m.raft && !m.saving && m.raft->has_ready()) {
    m.saving = m.raft->take_ready();
    if (m.saving->to_save()) {
      push(now_ + random(m.disk_ms + 1), What::kSaved, i);
      break;
    }
    saved(i);
  }
  if (!violation_.empty() || !m.raft) return;
  // Back to true time; late by a little, as timers are.
  const auto deadline = m.raft->next_deadline() - m.clock_offset;
  const auto at = std::max(now_ + 1, (deadline * 100 + m.clock_percent - 1) / m.clock_percent);
  if (at == m.tick_at) return;
  m.tick_at = at;
  push(at + (calm_ ? 0 : random(3)), What::kTick, i);
}

void RaftWorld::saved(std::uint32_t i) {
  Member& m = members_[i];
  if (!m.saving) return;
  const Ready ready = std::move(*m.saving);
  m.saving.reset();
  store(i, ready, ready.append.size() + 2);
  m.raft->persisted();
  check_member(i, nullptr);
  for (const RaftMessage& message : ready.messages) send(i, message);
  if (ready.restore && violation_.empty()) {
    ++restores_;
    if (*ready.snapshot->data != state_at(ready.snapshot->index))
      fail("I6: restored another state", i);
    if (ready.snapshot->members != group_at(ready.snapshot->index))
      fail("I6: restored another group", i);
    m.applied = ready.snapshot->index;
  }
  check_applied(i, ready.committed);
  if (!violation_.empty() || !chance(compact_percent_)) return;
  m.raft->compact(state_at(m.applied));
  check_member(i, nullptr);
}

// The state of this machine: what it was given, in order.
Bytes RaftWorld::state_at(std::uint64_t index) const {
  ByteWriter state;
  for (std::uint64_t i = 0; i < index; ++i) state.put(mix64(committed_[i].term, i));
  if (index == 0) state.put(std::uint64_t{0});
  return std::move(state).take();
}

// As the log on disk does: term and vote, the cut, then entry by entry.
void RaftWorld::store(std::uint32_t i, const Ready& ready, std::size_t parts) {
  Disk& disk = members_[i].disk;
  if (ready.snapshot) {  // one file in the place of another, or not yet
    if (parts < ready.append.size() + 2) return;
    const auto index = ready.snapshot->index;
    if (index > committed_.size()) return fail("snapshot of what is not committed", i);
    disk.snapshot = *ready.snapshot;
    disk.log.assign(committed_.begin(), committed_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  if (parts-- == 0) return;
  if (ready.hard_state) {
    if (ready.hard_state->term < disk.hard.term) fail("I11: durable term falls", i);
    disk.hard = *ready.hard_state;
    check_vote(i, disk.hard.term, disk.hard.vote);
  }
  if (ready.append.empty() || parts-- == 0) return;
  const auto first = ready.append.front().index;
  if (first == 0 || first > disk.log.size() + 1) return fail("gap in what is saved", i);
  const bool cut = first <= disk.log.size();
  disk.log.resize(first - 1);
  for (std::size_t k = 0; k < std::min(parts, ready.append.size()); ++k) {
    disk.log.push_back(ready.append[k]);
  }
  if (cut) check_durable_quorum(first);
}

void RaftWorld::send(std::uint32_t i, const RaftMessage& m) {
  check_send(i, m);
  history_ = mix64(history_, mix64(m.term, m.last_index * 8 + static_cast<std::uint64_t>(m.kind)));
  if (cut_[m.from][m.to] || chance(loss_percent_)) return;
  const auto copies = chance(double_percent_) ? 2 : 1;
  for (int k = 0; k < copies; ++k) {
    push(now_ + random(delay_ms_ + 1), What::kDeliver, m.to, m);
  }
}

}  // namespace starling::elastic
