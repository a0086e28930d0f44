// Changes of the group: whom the operator may lose, and whom it adds and takes out.

#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/elastic/raft_world.h"

namespace starling::elastic {

namespace {

bool is_in(const std::vector<std::uint32_t>& places, std::uint32_t place) {
  return std::find(places.begin(), places.end(), place) != places.end();
}

}  // namespace

bool RaftWorld::can_decide(const std::vector<std::uint32_t>& voters,
                           std::optional<std::uint32_t> without) const {
  std::size_t able = 0;
  for (const std::uint32_t place : voters) {
    const Member& m = members_[place];
    const bool whole = !m.disk.hard.lost && m.disk.hard.floor == LogPosition{};
    if (whole && !m.gone && without != place) ++able;
  }
  return able > voters.size() / 2;
}

// Whether every group that may decide can still do so without this member, also when the operator's wish is done.
bool RaftWorld::may_lose(std::uint32_t i) const {
  const auto can = [&](std::vector<std::uint32_t> group) {
    if (!can_decide(group, i)) return false;
    if (replaced_) std::erase(group, *replaced_);
    return can_decide(group, i);
  };
  if (!can(voters())) return false;
  for (const Member& m : members_) {
    if (m.raft && m.raft->last_index() > 0 && !can(m.raft->members().voters)) return false;
    for (const RaftEntry& e : m.disk.log)
      if (e.index > committed_.size() && e.members && !can(e.members->voters)) return false;
  }
  return true;
}

// More than a minority without their logs at a time: nobody could know what was promised.
bool RaftWorld::may_wipe(std::uint32_t i) const {
  return is_in(voters(), i) && may_lose(i);
}

std::optional<RaftMembers> RaftWorld::group_at(std::uint64_t count) const {
  while (count > 0 && !committed_[count - 1].members) --count;
  return count > 0 ? committed_[count - 1].members : std::nullopt;
}

std::vector<std::uint32_t> RaftWorld::voters() const {
  if (auto group = group_at(committed_.size())) return std::move(group->voters);
  std::vector<std::uint32_t> places(founders_);
  for (std::uint32_t i = 0; i < founders_; ++i) places[i] = i;
  return places;
}

bool RaftWorld::changed() const {
  return group_at(committed_.size()).has_value();
}

// The operator: now and then a member is lost for good, and another one takes part in its stead; the group grows,
// shrinks, and is led by another.
void RaftWorld::change() {
  push(now_ + 1 + random(3 * kElection), What::kChange, 0);
  const auto group = voters();
  if (joiner_ && is_in(group, *joiner_) && !(replaced_ && is_in(group, *replaced_)))
    joiner_ = replaced_ = {};
  if (!joiner_ && replaced_ && !is_in(group, *replaced_)) replaced_.reset();
  if (!calm_ && !joiner_ && !replaced_ && chance(change_percent_)) {
    const auto some = group[random(group.size())];
    const auto kind = random(4);
    if (kind == 0 && may_lose(some)) {  // lost for good, and replaced
      crash(some);
      members_[some].gone = true;
      replaced_ = some;
    } else if (kind == 1) {
      replaced_ = some;
    } else if (kind == 2 && group.size() > 3 && may_lose(some)) {
      replaced_ = some;
    }
    const bool grows = kind != 2 && members_.size() < kPlaces && group.size() < 7;
    if (grows) {
      joiner_ = static_cast<std::uint32_t>(members_.size());
      members_.emplace_back().disk_ms = 1 + random(5);
      for (Member& m : members_) m.contact.resize(members_.size());
      push(now_ + random(kElection), What::kRestart, *joiner_);
    } else if (kind != 2) {
      replaced_.reset();
    }
  }
  for (std::uint32_t i = 0; i < members_.size(); ++i) change_at(i);
}

// Asks this member, if it leads.
void RaftWorld::change_at(std::uint32_t i) {
  Member& m = members_[i];
  if (!violation_.empty() || !m.raft || m.raft->role() != RaftRole::kLeader ||
      now_ < m.paused_until)
    return;
  tick(i);
  if (!violation_.empty() || !m.raft || m.raft->role() != RaftRole::kLeader) return;
  if (!calm_ && chance(5)) {
    m.raft->hand_over();
    ++hand_overs_;
  }
  if (joiner_ || replaced_) {
    if (m.raft->propose_change({joiner_, replaced_})) check_member(i, nullptr);
  }
  pump(i);
}

// M1, M2: a leader changes its voters by one, and lets one vote that holds what is committed. M3: a place is given out
// once. M5: a member is told that it was taken out only if a committed entry did that.
void RaftWorld::check_change(std::uint32_t i) {
  Member& m = members_[i];
  const Raft& raft = *m.raft;
  if (raft.removed()) {
    const auto group = group_at(committed_.size());
    if (!group || is_in(group->voters, i) || group->learner == i || i >= group->next)
      fail("M5: told that it was taken out, and is a member", i);
  }
  if (raft.members() == m.group) return;
  const RaftMembers before = std::exchange(m.group, raft.members());
  const bool led = m.role == RaftRole::kLeader && raft.role() == RaftRole::kLeader;
  if (!led || m.hard.term != raft.term()) return;
  std::vector<std::uint32_t> changed;
  std::set_symmetric_difference(before.voters.begin(), before.voters.end(), m.group.voters.begin(),
                                m.group.voters.end(), std::back_inserter(changed));
  if (changed.size() > 1) return fail("M1: the voters of two groups differ by more than one", i);
  if (m.group.learner && m.group.learner != before.learner) {
    if (*m.group.learner < before.next) return fail("M3: a place is given out again", i);
    m.contact[*m.group.learner] = clock_of(m);
  }
  if (changed.empty() || !is_in(m.group.voters, changed[0])) return;
  const auto& log = members_[changed[0]].disk.log;
  if (before.learner != changed[0]) return fail("M2: votes without having been sent the log", i);
  const auto commit = raft.commit_index();
  const bool holds =
      log.size() >= commit && (commit == 0 || log[commit - 1] == entry_of(raft, commit));
  if (!holds) fail("M2: votes before it has the log", i);
}

}  // namespace starling::elastic
