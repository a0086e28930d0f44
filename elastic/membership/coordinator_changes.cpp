#include <map>
#include <utility>

#include "core/wire/limits.h"
#include "elastic/membership/coordinator.h"

// Coordinators that take the place of lost ones (docs/decisions/068-a-place-is-filled-once.md): which may take part, and
// where they are reached.

namespace starling::elastic {

using namespace coordinator_command;

// One that asks to take part asks several times a second; later places wait so long for it.
constexpr std::uint64_t kAsksFor_ms = 3000;

std::string coordinator_name(std::uint32_t place) {
  return "coordinator-" + std::to_string(place);
}

// Addresses of places that did not begin the group: the newest that this member heard from a place or found in its log,
// decided or not, else what the group has decided.
Seats Coordinator::seats() const {
  std::map<std::uint32_t, std::string> at = heard_at_;
  for (const auto& [place, seat] : group_.seats()) at.try_emplace(place, seat.address);
  Seats seats;
  for (auto& [place, address] : at) seats.seats.push_back({place, std::move(address)});
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
  const auto seat = group_.seats().find(e.place);
  const bool given = seat != group_.seats().end();
  const bool mine = given && seat->second.life == asked.life;
  // Every member believes it, leading or not: an election needs answers, and an answer needs an address.
  const bool later = e.place >= config_.raft.size;
  if (later && asked.add == e.place && !asked.address.empty() && (mine || !given)) {
    const bool news = std::exchange(heard_at_[e.place], asked.address) != asked.address;
    if (news) dial();
  }
  if (const Seats now = seats(); !now.seats.empty()) commands_.push_back(SendWorker{e.from, now});
  if (group_.end()) {
    if (!mine) answer(ChangeState::kRefused, "the job has ended");
    return;
  }
  if (!leader_ || !raft_.members_settled()) return;
  if (asked.add) {
    if (*asked.add != e.place || asked.address.empty() || asked.life == Nonce{}) return;
    const RaftMembers& now = raft_.members();
    const bool member = raft_.is_member(e.place);
    const std::string other =
        coordinator_name(e.place) + " has been in the group already" +
        (member ? ", with another log" : ", or one that comes after it has") +
        ": a place is given out once; start one in another place, under another key";
    if (asked.job_hash != config_.job.job_hash)
      return answer(ChangeState::kRefused, "the job file of " + coordinator_name(e.place) +
                                               " is another one than the group's");
    if (given && !mine) return answer(ChangeState::kRefused, other);
    if (!member && given && e.place < now.next) return answer(ChangeState::kRefused, other);
    if (!member && e.place < now.next)
      return answer(ChangeState::kRefused,
                    coordinator_name(e.place) +
                        " comes before one that has been in the group: places are given out in "
                        "the order of their numbers");
    if (!given && member)
      return answer(ChangeState::kRefused, coordinator_name(e.place) +
                                               " is one of those that begin the group: "
                                               "it is started without --add");
    asked_ms_[e.place] = now_ms_;
    if (const auto first = comes_first(e.place); first && !member)
      return answer(ChangeState::kUnderWay, coordinator_name(*first) + " comes first");
    if (!given || seat->second.address != asked.address)
      propose(CoordinatorAt{e.place, asked.address, asked.life});
    if (!given) return answer(ChangeState::kUnderWay);
  }
  const auto changed = raft_.propose_change({asked.add, asked.remove});
  if (!changed && changed.error().code() == Code::kBadInput)
    return answer(ChangeState::kRefused, changed.error().text());
  const bool in = !asked.add || raft_.is_voter(*asked.add);
  const bool out = !asked.remove || !raft_.is_member(*asked.remove);
  if (changed && in && out && raft_.members_settled()) return answer(ChangeState::kDone);
  answer(asked.add ? ChangeState::kMayBegin : ChangeState::kUnderWay,
         changed ? std::string() : changed.error().text());
}

// Returns a place before this one that asks to take part as well and is not in yet; the group takes places in order.
std::optional<std::uint32_t> Coordinator::comes_first(std::uint32_t place) const {
  for (const auto& [other, at_ms] : asked_ms_) {
    if (other >= place) break;
    const bool asks = now_ms_ - at_ms < kAsksFor_ms;
    if (asks && other >= raft_.members().next && !raft_.is_member(other)) return other;
  }
  return std::nullopt;
}

// Tells observers when the voters are others, and ends one that was taken out.
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
  tell(event::CoordinatorsChanged{raft_.members_index(), now.voters});
}

}  // namespace starling::elastic
