#include "elastic/membership/standstill.h"

#include <algorithm>
#include <utility>

#include "elastic/protocol/plan.h"

namespace starling::elastic {
namespace {

constexpr std::uint64_t kWarnings = 4;  // the warning comes after patience / kWarnings

std::string ms(std::uint64_t time) {
  return std::to_string(time) + " ms";
}

struct Members {
  std::vector<Incarnation> who;
  std::vector<Standing> standing;
};

// Members of running epochs that can be waited for; none while a plan is on its way to a member.
Members members_of(const Group& group, const Roster& roster) {
  Members all;
  const Plan& plan = *group.plan();
  for (const Member* m : roster.running_members()) {
    const Contact* c = roster.find(m->who);
    const EpochId entered = c ? c->entered : EpochId{};
    const bool in_it =
        entered == plan.id || (plan.kind == PlanKind::kPrepared && entered == plan.predecessor);
    if (!in_it && m->joiner) continue;  // it waits for the others' parameters
    if (!in_it) return {};
    all.who.push_back(m->who);
    all.standing.push_back(c->headway.standing());
  }
  return all;
}

// If no member owes anything and all wait, something is lost between two of them: this names the
// member whose frames most others miss, of equals the one of the highest rank. If no member is
// missed, none is named.
void name_the_missed(Members& all, const Plan& plan, const Roster& roster) {
  const auto owes = [](const Standing& s) { return s.owes; };
  if (std::any_of(all.standing.begin(), all.standing.end(), owes)) return;
  std::vector<std::size_t> times(all.who.size());
  for (const Incarnation& who : all.who) {
    const Contact* c = roster.find(who);
    if (!c || c->entered != plan.id) continue;
    for (const Rank missed : c->missed) {
      if (missed >= plan.members.size()) continue;
      const auto at = std::find(all.who.begin(), all.who.end(), plan.members[missed].who);
      if (at != all.who.end()) ++times[static_cast<std::size_t>(at - all.who.begin())];
    }
  }
  const auto most = std::max_element(times.rbegin(), times.rend());
  if (most == times.rend() || *most == 0) return;
  all.standing[static_cast<std::size_t>(times.rend() - most) - 1].owes = true;
}

// Whether the other members have current copies of all segments.
bool can_be_spared(const std::vector<Incarnation>& by, const Plan& plan, bool moved) {
  const auto copies = copies_of(plan, moved);
  for (SegmentId s = 0; s < plan.holders.size(); ++s) {
    bool covered = false;
    for (Rank r = 0; r < plan.members.size(); ++r)
      covered = covered ||
                (copies[r][s] && std::find(by.begin(), by.end(), plan.members[r].who) == by.end());
    if (!covered) return false;
  }
  return true;
}

}  // namespace

Standstill standstill(const LeaderConfig& config, const Group& group, const Roster& roster,
                      const EpochProgress& progress) {
  Standstill still;
  if (config.elastic.standstill_ms == 0 || config.bugs.standstill_unseen) return still;
  if (!group.plan() || group.restart() || group.end()) return still;
  Members members = members_of(group, roster);
  name_the_missed(members, *group.plan(), roster);
  still.patience_ms = patience_ms(members.standing, progress.steps(),
                                  config.elastic.standstill_steps, config.elastic.standstill_ms);
  const HeldUp held = held_up(members.standing, roster.now_ms(), still.patience_ms / kWarnings);
  for (const std::size_t i : held.by) still.by.push_back(members.who[i]);
  still.since_ms = held.since_ms;
  const std::uint64_t so_far = roster.now_ms() - held.since_ms;
  if (still.by.empty() || so_far <= still.patience_ms) return still;
  still.at_any_price = so_far > still.patience_ms + config.elastic.state_timeout_ms;
  const bool moved = progress.moves_done() || config.bugs.prepared_holders_moving;
  still.too_long = still.at_any_price || can_be_spared(still.by, *group.plan(), moved);
  return still;
}

std::string warning_of(const Standstill& still, const Incarnation& who, const Group& group,
                       const Roster& roster) {
  const Contact& c = roster.at(who);
  const Headway::Left& left = c.headway.left();
  std::string at = "what it does for step " + std::to_string(c.version) + " with state and sums (" +
                   std::to_string(left.orders) + " orders left)";
  if (left == Headway::Left{}) at = "what it was to send for step " + std::to_string(c.version);
  if (left.share != 0)
    at = "its share of step " + std::to_string(c.version) + " (" + std::to_string(left.share) +
         " micro-batches left)";
  if (left.load != 0)
    at = "loading the checkpoint of step " + std::to_string(group.start()) + " (" +
         std::to_string(left.load) + " segments left)";
  return roster.member_of(who).name + " is heard but gets nowhere with " + at + " for " +
         ms(roster.now_ms() - still.since_ms) + ", and all others wait for it; after " +
         ms(still.patience_ms) + " it is left out";
}

std::string cause_of(const Standstill& still, const Roster& roster) {
  std::string names;
  for (const Incarnation& who : still.by)
    names += (names.empty() ? "" : ", ") + roster.member_of(who).name;
  return names + " got nowhere for " + ms(roster.now_ms() - still.since_ms) +
         " while the others waited";
}

}  // namespace starling::elastic
