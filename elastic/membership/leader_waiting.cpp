#include <algorithm>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "elastic/membership/leader.h"
#include "elastic/protocol/plan.h"

// Whom the leader does not wait for any more although it is heard: who holds all others up. And what
// must hold of the leader's own fields.

namespace starling::elastic {
namespace {

constexpr std::uint64_t kWarnings = 4;  // people are told after this part of the patience

std::string ms(std::uint64_t time) {
  return std::to_string(time) + " ms";
}

}  // namespace

// ---- Standing still ---------------------------------------------------------------------------

// A worker's heartbeats come from the thread that obeys the protocol. One that computes, reads or
// has the state may hang in the meantime, in a file system or a device for one, and everybody else
// waits for it.
void Leader::watch_progress() {
  if (config_.bugs.standstill_unseen) return;
  if (config_.standstill_ms == 0 || forming_.active() || plan_proposed_ || end_proposed_) return;
  if (!group_.plan() || group_.restart() || group_.end()) return;
  std::vector<Incarnation> who;
  std::vector<Standing> standing;
  for (const Member* m : roster_.running_members()) {
    const Contact* c = roster_.find(m->who);
    const EpochId entered = c ? c->entered : EpochId{};
    const bool in_it =
        entered == group_.plan()->id ||
        (group_.plan()->kind == PlanKind::kPrepared && entered == group_.plan()->predecessor);
    if (!in_it && m->joiner) continue;  // it waits for the others' parameters
    if (!in_it) return;                 // a plan is on its way to it
    who.push_back(m->who);
    const bool owes = c->share_left != 0 || c->load_left != 0 || c->orders_left != 0;
    standing.push_back({owes, c->moved_ms});
  }
  const std::uint64_t patience =
      patience_ms(standing, course_.steps(), config_.standstill_steps, config_.standstill_ms);
  const HeldUp held = held_up(standing, now_ms_, patience / kWarnings);
  if (held.by.empty()) return;
  std::vector<Incarnation> by;
  for (const std::size_t i : held.by) by.push_back(who[i]);
  for (const Incarnation& w : by) warn_of_standstill(w, held.since_ms, patience);
  if (now_ms_ - held.since_ms > patience) hold_up(by, held.since_ms, patience);
}

void Leader::warn_of_standstill(const Incarnation& who, std::uint64_t since_ms,
                                std::uint64_t patience_ms) {
  if (!roster_.warning_is_due(who, since_ms)) return;
  const Contact& c = roster_.at(who);
  std::string at = "what it does for step " + std::to_string(c.version) + " with state and sums (" +
                   std::to_string(c.orders_left) + " orders left)";
  if (c.share_left != 0)
    at = "its share of step " + std::to_string(c.version) + " (" + std::to_string(c.share_left) +
         " micro-batches left)";
  if (c.load_left != 0)
    at = "loading the checkpoint of step " + std::to_string(group_.start()) + " (" +
         std::to_string(c.load_left) + " segments left)";
  warn(roster_.member_of(who).name + " is heard but gets nowhere with " + at + " for " +
       ms(now_ms_ - since_ms) + ", and all others wait for it; after " + ms(patience_ms) +
       " it is left out");
}

// Left out at once if the others have all that they have, else after state_timeout, as one is that
// is silent.
void Leader::hold_up(const std::vector<Incarnation>& by, std::uint64_t since_ms,
                     std::uint64_t patience_ms) {
  const auto holds_up = [&](const Incarnation& who) {
    return std::find(by.begin(), by.end(), who) != by.end();
  };
  const Plan& plan = *group_.plan();
  const auto copies = copies_now(plan);
  bool covered = true;
  for (SegmentId s = 0; s < config_.segments && covered; ++s) {
    covered = false;
    for (Rank r = 0; r < plan.members.size(); ++r)
      covered = covered || (copies[r][s] && !holds_up(plan.members[r].who));
  }
  const bool at_any_price = now_ms_ - since_ms > patience_ms + config_.state_timeout_ms;
  if (!covered && !at_any_price) return;
  std::string names;
  for (const Incarnation& who : by)
    names += (names.empty() ? "" : ", ") + roster_.member_of(who).name;
  take(forming_.leave_out(
      by, since_ms,
      names + " got nowhere for " + ms(now_ms_ - since_ms) + " while the others waited",
      at_any_price));
}

// ---- What bits the group computes --------------------------------------------------------------

// Why one with this fingerprint cannot be a member; none: it can.
std::optional<std::string> Leader::other_bits(const Join& m) const {
  const Join* group = roster_.standard();
  if (!group || group->fingerprint == m.fingerprint) return std::nullopt;
  return "this worker computes other bits than the group: it has " + m.fingerprint_text +
         ", the group has " + group->fingerprint_text + " (" + group->name + ")";
}

// ---- Which fields may stand beside which ------------------------------------------------------

// A leader is idle, forming, or waits for Raft (something is proposed). These cost the same however
// many workers there are.
void Leader::check_invariants() const {
  roster_.check_invariants();
  claims_.check_invariants();
  forming_.check_invariants();
  if (!group_.plan()) STARLING_CHECK(!epoch_);
  if (epoch_) STARLING_CHECK(epoch_->id == group_.plan()->id);
  if (last_record_) STARLING_CHECK(last_record_->version != kNoVersion);
  drafts_.check_invariants();
  STARLING_CHECK(now_ms_ >= began_ms_);
}

}  // namespace starling::elastic
