#include <algorithm>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/wire/limits.h"
#include "core/wire/raft_members.h"
#include "elastic/raft/raft.h"

// Changes the group, one member at a time, by entries of the log (docs/decisions/068-a-place-is-filled-once.md).
//
// A member goes by the newest such entry of its log, committed or not. A leader appends one only when the one before
// is committed, and an entry of its own term is: so the voters of two groups that may both decide differ by one, and any
// majority of the one meets any of the other. A change has three steps:
//   a new member is a learner first: it is sent the log, and its vote and copies do not count. It may stand: where
//     voters are lost its log may be ahead of those that are left, which then vote for nobody else;
//   it becomes a voter when its log reaches what is committed;
//   then the leaving one is taken out. A leader that is to leave hands over first: another one does it.

namespace starling::elastic {

namespace {

bool contains(const std::vector<std::uint32_t>& places, std::uint32_t place) {
  return std::binary_search(places.begin(), places.end(), place);
}

}  // namespace

bool Raft::is_voter(std::uint32_t place) const {
  return contains(members_.voters, place);
}

// Whether a committed entry has taken this place out; an entry that is not committed may go again.
bool Raft::is_removed(std::uint32_t place) const {
  return members_index_ <= commit_ && place < members_.next && !is_member(place);
}

// The group at an index that the log or the snapshot covers; none: as it began.
std::optional<RaftMembers> Raft::members_at(std::uint64_t index) const {
  for (; index > snapshot_.index; --index)
    if (entry(index).members) return entry(index).members;
  return snapshot_.members;
}

// Finds the newest entry that has a group.
void Raft::find_members() {
  members_index_ = last_index();
  while (members_index_ > snapshot_.index && !entry(members_index_).members) --members_index_;
  if (auto members = members_at(members_index_)) {
    members_ = std::move(*members);
    return;
  }
  members_index_ = 0;
  members_ = {};
  for (std::uint32_t place = 0; place < config_.size; ++place) members_.voters.push_back(place);
  members_.next = config_.size;
}

bool Raft::may_change() const {
  return commit_ >= own_first_ && (members_index_ <= commit_ || has(RaftBug::kChangesAtOnce));
}

Result<> Raft::propose_change(const RaftChange& change) {
  if (role_ != RaftRole::kLeader) return Error(Code::kUnavailable, "not the leader");
  const auto name = [](std::uint32_t place) { return "coordinator-" + std::to_string(place); };
  RaftMembers next = members_;
  if (change.add && !is_member(*change.add)) {
    if (*change.add < next.next)
      return Error(
          Code::kBadInput,
          name(*change.add) +
              " has been in the group already, or one after it has: places are given out once, "
              "in the order of their numbers");
    if (*change.add >= limits::kSeats || next.voters.size() >= limits::kVoters)
      return Error(Code::kBadInput, "a group has at most " + std::to_string(limits::kVoters) +
                                        " coordinators, and places up to " +
                                        std::to_string(limits::kSeats - 1));
    if (change.remove && *change.remove < next.next && !is_member(*change.remove))
      return Error(Code::kBadInput, name(*change.remove) + " is out of the group already");
    if (next.learner)
      return Error(Code::kUnavailable,
                   name(*next.learner) + " is being added; --remove gives it up");
    next.learner = *change.add;
    next.next = *change.add + 1;
  }
  if (change.remove && next.leaving != change.remove) {
    const bool gives_up = next.learner == change.remove && change.add != change.remove;
    if (gives_up) {
      // Nobody asks any more that the one which it was to replace goes.
      next.learner.reset();
      next.leaving.reset();
    } else if (contains(next.voters, *change.remove)) {
      if (next.leaving)
        return Error(Code::kUnavailable, name(*next.leaving) + " is being taken out");
      next.leaving = change.remove;
    } else if (*change.remove >= next.next) {
      return Error(Code::kBadInput, name(*change.remove) + " is not in the group");
    }
  }
  if (next == members_) return ok();
  if (members_.learner == config_.self)
    return Error(Code::kUnavailable, name(config_.self) + " is being added");
  if (next.leaving && next.voters.size() == 1 && !next.learner)
    return Error(Code::kBadInput, name(*next.leaving) + " is the only coordinator of the group");
  if (!may_change()) return Error(Code::kUnavailable, "another change is under way");
  append_members(std::move(next));
  review_change();
  check_invariants();
  return ok();
}

void Raft::append_members(RaftMembers members) {
  log_.push_back({last_index() + 1, hard_.term, {}, std::move(members)});
  find_members();
  std::erase_if(peers_, [&](const auto& peer) { return !is_member(peer.first); });
  Peer unknown;
  unknown.next = last_index();
  unknown.contact_ms = unknown.since_ms = now_ms_;
  for_others([&](std::uint32_t place) { peers_.try_emplace(place, unknown); });
  send_appends(/*heartbeat=*/false);
}

// Carries a change on, as leader.
void Raft::review_change() {
  if (role_ != RaftRole::kLeader) return;
  if (may_change()) {
    RaftMembers next = members_;
    if (next.learner) {
      const bool has_the_log = next.learner == config_.self ||  // leads, so it has
                               peers_.at(*next.learner).match >= std::max(commit_, members_index_);
      if (has_the_log || has(RaftBug::kVotesUnread)) {
        next.voters.insert(std::upper_bound(next.voters.begin(), next.voters.end(), *next.learner),
                           *next.learner);
        next.learner.reset();
      }
    } else if (next.leaving && next.leaving != config_.self) {
      std::erase(next.voters, *next.leaving);
      next.leaving.reset();
    }
    if (next != members_) append_members(std::move(next));
  }
  review_hand_over();
}

// Asks a voter with the whole log to stand. It may be lost, so another one is asked after a while.
void Raft::review_hand_over() {
  const bool leaves =
      members_.leaving == config_.self && !members_.learner && members_index_ <= commit_;
  if (!(handing_over_ || leaves) || now_ms_ < elect_at_ms_ || commit_ < own_first_) return;
  std::optional<std::uint32_t> heir;
  for (const auto& [place, peer] : peers_) {
    const bool able = is_voter(place) && place != members_.leaving && peer.match == last_index();
    if (able && (!heir || peer.contact_ms > peers_.at(*heir).contact_ms)) heir = place;
  }
  if (!heir) return;
  elect_at_ms_ = now_ms_ + config_.election_ms;
  messages_.push_back({RaftKind::kElect, config_.self, *heir, hard_.term});
}

void Raft::on_elect(const RaftMessage& m) {
  const bool mine = m.term == hard_.term && leader_ == m.from && role_ == RaftRole::kFollower;
  if (!mine || !votes() || last_position() < hard_.floor) return;
  begin_try();
  stand(/*asked_by_leader=*/true);
}

// The sender's log says so, and a committed entry stays: this member asks nobody any more.
void Raft::on_removed(const RaftMessage& m) {
  if (role_ != RaftRole::kLeader && m.term > 0) removed_ = true;
}

}  // namespace starling::elastic
