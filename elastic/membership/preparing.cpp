#include "elastic/membership/preparing.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "elastic/membership/placement.h"
#include "elastic/protocol/plan.h"
#include "elastic/protocol/shares.h"

namespace starling::elastic {
namespace {

class Preparing {
 public:
  Preparing(const LeaderConfig& config, const Group& group, Roster& roster,
            const EpochProgress& progress)
      : config_(config),
        group_(group),
        roster_(roster),
        now_(*group.plan()),
        promotes_(!now_.moves.empty() && progress.moves_done()),
        moved_(progress.moves_done() || config.bugs.prepared_holders_moving) {}

  bool nothing_to_do() const;
  bool at_the_end() const;
  std::optional<Plan> plan();

 private:
  std::vector<bool> leavers() const;
  bool leavers_go(const std::vector<std::vector<bool>>& copies) const;
  std::vector<Member> who_stays(bool leavers_go, const std::vector<Member>& joining,
                                std::string& cause) const;
  std::vector<Member> who_joins(std::string& cause);
  std::vector<Rank> shares_for(const std::vector<Member>& members) const;

  const LeaderConfig& config_;
  const Group& group_;
  Roster& roster_;
  const Plan& now_;      // the last one, which all of its members have entered
  const bool promotes_;  // its moves are done: owners change, copies are trimmed
  const bool moved_;     // a copy that it moves is current whatever the step
  const std::vector<bool> leaving_ = leavers();
};

// Which of the last plan's members leave, by rank. Leaves that the plan does not say yet are
// gathered as joins are, unless a notice is too short for that.
std::vector<bool> Preparing::leavers() const {
  std::vector<bool> leaving(now_.members.size());
  std::vector<Rank> fresh;
  bool window_over = false;
  for (Rank r = 0; r < now_.members.size(); ++r) {
    const auto* worker = group_.find(now_.members[r].who);
    if (!worker || !worker->leaving) continue;
    leaving[r] = now_.members[r].draining;
    if (leaving[r]) continue;
    fresh.push_back(r);
    const Contact& c = roster_.at(now_.members[r].who);
    const std::uint64_t now_ms = roster_.now_ms(), window = config_.change_window_ms;
    const bool hurry =
        c.leave_by_ms != 0 && now_ms + config_.elastic.lease_ms + window > c.leave_by_ms;
    window_over = window_over || hurry || now_ms - c.leaving_ms >= window;
  }
  if (window_over)
    for (Rank r : fresh) leaving[r] = true;
  return leaving;
}

bool Preparing::nothing_to_do() const {
  const bool somebody_leaves = std::find(leaving_.begin(), leaving_.end(), true) != leaving_.end();
  return !promotes_ && !somebody_leaves && roster_.waiting_joiners().empty();
}

bool Preparing::at_the_end() const {
  return std::any_of(now_.members.begin(), now_.members.end(), [&](const Member& m) {
    const Version version = roster_.at(m.who).version;
    return version != kNoVersion && version >= config_.steps;
  });
}

// Leavers go when enough copies exist without them; at the end of a notice, one of each is enough.
bool Preparing::leavers_go(const std::vector<std::vector<bool>>& copies) const {
  std::vector<Rank> staying;  // of those that hold
  bool notice_over = false;
  for (Rank r = 0; r < now_.members.size(); ++r) {
    const std::uint64_t leave_by_ms = roster_.at(now_.members[r].who).leave_by_ms;
    if (!leaving_[r] && holds(now_.members[r].role))
      staying.push_back(r);
    else if (leaving_[r] && leave_by_ms != 0 &&
             roster_.now_ms() + config_.elastic.lease_ms > leave_by_ms)
      notice_over = true;
  }
  if (staying.empty()) return false;
  std::size_t fewest = staying.size();
  for (SegmentId s = 0; s < config_.segments; ++s) {
    const auto has = [&](Rank r) { return bool(copies[r][s]); };
    fewest = std::min<std::size_t>(fewest, std::count_if(staying.begin(), staying.end(), has));
  }
  const std::size_t wanted = std::min<std::size_t>(config_.replicas, staying.size() - 1) + 1;
  return fewest >= wanted || (notice_over && fewest >= 1);
}

// A leaver goes on where its role would be left to nobody: the others join and leave meanwhile.
std::vector<Member> Preparing::who_stays(bool leavers_go, const std::vector<Member>& joining,
                                         std::string& cause) const {
  std::vector<Member> there = joining;
  for (Rank r = 0; r < now_.members.size(); ++r)
    if (!leaving_[r]) there.push_back(now_.members[r]);
  const auto lacking = role_lacking(there);
  const auto needed = [&](const Member& leaver) {
    if (!lacking) return false;
    return *lacking == WorkerRole::kCompute ? computes(leaver.role) : holds(leaver.role);
  };
  there.clear();
  for (Rank r = 0; r < now_.members.size(); ++r) {
    Member member = roster_.member_of(now_.members[r].who);
    member.draining = leaving_[r];
    if (member.draining && leavers_go && !needed(member)) {
      cause = member.name + " leaves";
      continue;
    }
    if (member.draining != now_.members[r].draining) cause = member.name + " announced its leave";
    there.push_back(std::move(member));
  }
  return there;
}

// All waiting joiners, as soon as the first of them has waited for the window.
std::vector<Member> Preparing::who_joins(std::string& cause) {
  const auto waiting = roster_.waiting_joiners();
  bool window_over = false;
  for (const Incarnation& who : waiting)
    window_over =
        window_over || roster_.now_ms() - roster_.meet(who).welcomed_ms >= config_.change_window_ms;
  if (!window_over) return {};
  std::vector<Member> joining;
  for (const Incarnation& who : waiting) {
    if (roster_.silent(who)) continue;
    joining.push_back(roster_.member_of(who));
    joining.back().joiner = true;
    cause = joining.back().name + " joins";
  }
  return joining;
}

std::optional<Plan> Preparing::plan() {
  const auto copies = copies_of(now_, moved_);
  Plan plan;
  plan.kind = PlanKind::kPrepared;
  plan.predecessor = now_.id;
  std::string joins;
  std::vector<Member> joining = who_joins(joins);
  std::vector<Member> there = who_stays(leavers_go(copies), joining, plan.cause);
  if (!joins.empty()) plan.cause = std::move(joins);
  if (plan.cause.empty()) {
    if (!promotes_) return std::nullopt;
    plan.cause = "moves done";
  }
  plan.members = ring_order(std::move(there), std::move(joining));
  if (role_lacking(plan.members)) return std::nullopt;  // as below
  PlacementInput in = config_.placement();
  for (const Member& m : plan.members) {
    const auto before = rank_in(now_, m.who);
    in.copies.push_back(before ? copies[*before] : std::vector<bool>(config_.segments));
  }
  in.members = plan.members;
  Placement placement = place(in);
  if (!placement.complete) return std::nullopt;  // the leave waits for the end of its notice
  plan.shares = shares_for(plan.members);
  plan.holders = std::move(placement.holders);
  plan.moves = std::move(placement.moves);
  return plan;
}

// The shares of a prepared epoch's first step, as its joiners have no vote to go by. Joiners count
// as the median of the others: with one micro-batch each that step would hardly be shorter.
std::vector<Rank> Preparing::shares_for(const std::vector<Member>& members) const {
  std::vector<Capacity> capacities;
  std::vector<std::uint64_t> known;
  for (const Member& m : members) {
    const Contact* c = roster_.find(m.who);
    const std::uint64_t ns = c ? c->micro_batch_ns : 0;
    capacities.push_back({ns, 0, computes(m.role)});
    if (ns != 0) known.push_back(ns);
  }
  if (!known.empty()) {
    const auto middle = known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2);
    std::nth_element(known.begin(), middle, known.end());
    for (Rank r = 0; r < members.size(); ++r)
      if (members[r].joiner && capacities[r].micro_batch_ns == 0)
        capacities[r].micro_batch_ns = *middle;
  }
  return first_shares(capacities, config_.micro_batches);
}

}  // namespace

std::optional<Plan> prepare(const LeaderConfig& config, const Group& group, Roster& roster,
                            const EpochProgress& progress) {
  if (!roster.all_entered()) return std::nullopt;
  Preparing preparing(config, group, roster, progress);
  // Everything so far is cheap, as every message of every worker asks it.
  if (preparing.nothing_to_do() || preparing.at_the_end()) return std::nullopt;
  return preparing.plan();
}

}  // namespace starling::elastic
