#include <algorithm>
#include <utility>

#include "core/wire/limits.h"
#include "elastic/membership/coordinator.h"

// Others in the place of coordinators that are gone (docs/decisions/068-a-place-is-filled-once.md): who may take part,
// where coordinators are reached, and who is told.

namespace starling::elastic {

using namespace coordinator_command;

namespace {

bool contains(const std::vector<std::uint32_t>& places, std::uint32_t place) {
  return std::find(places.begin(), places.end(), place) != places.end();
}

}  // namespace

std::string coordinator_name(std::uint32_t place) {
  return "coordinator-" + std::to_string(place);
}

// Of members, and of one that is about to be one: the leader must reach it before.
Seats Coordinator::seats() const {
  Seats seats;
  const RaftMembers& now = raft_.members();
  for (const auto& [place, seat] : group_.seats())
    if (contains(now.voters, place) || now.learner == place || place >= now.next)
      seats.seats.push_back({place, seat.address});
  return seats;
}

void Coordinator::dial() {
  commands_.push_back(Dial{seats()});
}

// Only the one that leads answers; the others say where it may be.
void Coordinator::on_event(const coordinator_event::ChangeArrived& e) {
  const ChangeAsked& asked = e.asked;
  const auto answer = [&](ChangeState state, std::string reason = {}) {
    commands_.push_back(SendWorker{e.from, ChangeAnswered{state, std::move(reason)}});
  };
  if (!group_.seats().empty()) commands_.push_back(SendWorker{e.from, seats()});
  if (group_.end()) return answer(ChangeState::kRefused, "the job has ended");
  if (!leader_) return;
  if (asked.add) {
    if (*asked.add != e.place || asked.address.empty() || asked.life == Nonce{}) return;
    const RaftMembers& now = raft_.members();
    const auto seat = group_.seats().find(e.place);
    const bool given = seat != group_.seats().end();
    const bool member = contains(now.voters, e.place) || now.learner == e.place;
    const std::string other =
        coordinator_name(e.place) + " has been in the group already" +
        (member ? ", with another log" : "") +
        ": a place is given out once; start one in another place, under another key";
    if (given && seat->second.life != asked.life) return answer(ChangeState::kRefused, other);
    if (!member && e.place < now.next) return answer(ChangeState::kRefused, other);
    if (!given && member)
      return answer(ChangeState::kRefused, coordinator_name(e.place) +
                                               " is one of those that begin the group: "
                                               "it is started without --add");
    if (!given || seat->second.address != asked.address)
      propose(CoordinatorAt{e.place, asked.address, asked.life});
    if (!given) return answer(ChangeState::kUnderWay);
  }
  const auto changed = raft_.propose_change({asked.add, asked.remove});
  if (!changed && changed.error().code() == Code::kBadInput)
    return answer(ChangeState::kRefused, changed.error().text());
  const RaftMembers& now = raft_.members();
  const bool in = !asked.add || contains(now.voters, *asked.add);
  const bool out =
      !asked.remove || (!contains(now.voters, *asked.remove) && now.learner != asked.remove);
  if (changed && in && out && raft_.members_settled()) return answer(ChangeState::kDone);
  answer(asked.add ? ChangeState::kMayBegin : ChangeState::kUnderWay);
}

// Tells people when the voters are others, and ends one that was taken out.
void Coordinator::review_members() {
  if (failed_ || refused_) return;
  if (raft_.removed()) {
    failed_ = true;
    commands_.push_back(
        Fail{"as it was taken out of the group; the others go on", /*taken_out=*/true});
    return;
  }
  const RaftMembers& now = raft_.members();
  if (!raft_.members_settled() || now.voters == told_voters_) return;
  told_voters_ = now.voters;
  dial();
  if (!leader_) return;
  std::string names;
  for (const std::uint32_t place : now.voters)
    names += (names.empty() ? "" : ", ") + coordinator_name(place);
  warn("the coordinators of the group are now " + names);
}

}  // namespace starling::elastic
