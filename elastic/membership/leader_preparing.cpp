#include <algorithm>
#include <utility>

#include "elastic/membership/leader.h"
#include "elastic/membership/placement.h"
#include "elastic/protocol/plan.h"
#include "elastic/protocol/shares.h"

// Changes that stop nobody, and the end of the job.

namespace starling::elastic {

// Of the last plan's members, all of them heard in it, by rank. Leaves that the plan does not say
// yet are gathered as joins are, unless a notice is too short for that.
std::vector<bool> Leader::leavers() const {
  const Plan& now = *group_.plan();
  std::vector<bool> leaving(now.members.size());
  std::vector<Rank> fresh;
  bool window_over = false;
  for (Rank r = 0; r < now.members.size(); ++r) {
    const auto* worker = group_.find(now.members[r].who);
    if (!worker || !worker->leaving) continue;
    leaving[r] = now.members[r].draining;
    if (leaving[r]) continue;
    fresh.push_back(r);
    const Contact& c = roster_.at(now.members[r].who);
    const std::uint64_t window = config_.change_window_ms;
    const bool hurry = c.leave_by_ms != 0 && now_ms_ + config_.lease_ms + window > c.leave_by_ms;
    window_over = window_over || hurry || now_ms_ - c.leaving_ms >= window;
  }
  if (window_over)
    for (Rank r : fresh) leaving[r] = true;
  return leaving;
}

void Leader::try_prepare() {
  const Plan& now = *group_.plan();
  if (!roster_.all_entered()) return;
  // Cheap so far, as it is asked with every message of every worker.
  const auto leaving = leavers();
  const bool somebody_leaves = std::find(leaving.begin(), leaving.end(), true) != leaving.end();
  const bool moved = !now.moves.empty() && course_.moves_done();
  if (!somebody_leaves && !moved && roster_.waiting_joiners().empty()) return;
  for (const Member& m : now.members) {
    const Contact& c = roster_.at(m.who);
    if (c.version != kNoVersion && c.version >= config_.steps) return;  // the end: nothing changes
  }
  // Those that are current whatever the step: a move under way does not count.
  const auto copies = copies_of(now, course_.moves_done() || config_.bugs.prepared_holders_moving);

  // Leavers go when enough copies exist without them, or their notice ends.
  std::vector<Rank> staying;
  bool notice_over = false;
  for (Rank r = 0; r < now.members.size(); ++r) {
    const std::uint64_t leave_by_ms = roster_.at(now.members[r].who).leave_by_ms;
    if (!leaving[r])
      staying.push_back(r);
    else if (leave_by_ms != 0 && now_ms_ + config_.lease_ms > leave_by_ms)
      notice_over = true;
  }
  std::size_t fewest = staying.size();
  for (SegmentId s = 0; s < config_.segments; ++s) {
    const auto has = [&](Rank r) { return bool(copies[r][s]); };
    fewest = std::min<std::size_t>(fewest, std::count_if(staying.begin(), staying.end(), has));
  }
  const std::size_t wanted =
      staying.empty() ? 1 : std::min<std::size_t>(config_.replicas, staying.size() - 1) + 1;
  const bool leavers_go = !staying.empty() && (fewest >= wanted || (notice_over && fewest >= 1));

  Plan plan;
  plan.kind = PlanKind::kPrepared;
  plan.predecessor = now.id;
  PlacementInput in;
  std::vector<Member> there, joining;
  bool changed = false;
  for (Rank r = 0; r < now.members.size(); ++r) {
    Member member = roster_.member_of(now.members[r].who);
    member.draining = leaving[r];
    if (member.draining && leavers_go) {
      changed = true;
      plan.cause = member.name + " leaves";
      continue;
    }
    if (member.draining != now.members[r].draining) {
      changed = true;
      plan.cause = member.name + " announced its leave";
    }
    there.push_back(std::move(member));
  }
  bool window_over = false;
  const auto joiners = roster_.waiting_joiners();
  for (const Incarnation& who : joiners)
    window_over =
        window_over || now_ms_ - roster_.meet(who).welcomed_ms >= config_.change_window_ms;
  if (window_over) {
    for (const Incarnation& who : joiners) {
      if (roster_.silent(who)) continue;
      changed = true;
      joining.push_back(roster_.member_of(who));
      joining.back().joiner = true;
      plan.cause = joining.back().name + " joins";
    }
  }
  plan.members = ring_order(std::move(there), std::move(joining));
  for (const Member& m : plan.members) {
    const auto before = rank_in(now, m.who);
    in.copies.push_back(before ? copies[*before] : std::vector<bool>(config_.segments));
  }
  in.segments = config_.segments;
  in.bucket_segments = config_.bucket_segments;
  in.replicas = config_.replicas;
  in.budget = config_.move_budget;
  in.members = plan.members;
  const bool promote = !changed && moved;
  if (!changed && !promote) return;
  if (promote) plan.cause = "moves done";
  Placement placement = place(in);
  if (!placement.complete) return;  // the leave waits (design: nobody else can hold the state)
  plan.id = forming_.fresh_id();
  plan.shares = shares_for(plan.members);
  plan.holders = std::move(placement.holders);
  plan.moves = std::move(placement.moves);
  propose_plan(std::move(plan));
}

// Of a prepared epoch's first step, as its joiners have no vote to go by. They count as the median
// of the others: with one micro-batch each they would leave that step nearly as long as before.
std::vector<Rank> Leader::shares_for(const std::vector<Member>& members) const {
  std::vector<Capacity> capacities;
  std::vector<std::uint64_t> known;
  for (const Member& m : members) {
    const Contact* c = roster_.find(m.who);
    const std::uint64_t ns = c ? c->micro_batch_ns : 0;
    capacities.push_back({ns, 0});
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

// ---- The end ----------------------------------------------------------------------------------

// Of one epoch: a prepared plan that comes after the last vote is never entered.
void Leader::try_end() {
  for (const Plan* plan : roster_.running_plans())
    if (const auto end = end_of_finished(*plan)) return end_well(*end);
}

// The parts of all members add up to the digests of the last version.
std::optional<JobEnded> Leader::end_of_finished(const Plan& plan) const {
  JobEnded end;
  for (const Member& m : plan.members) {
    const Contact* c = roster_.find(m.who);
    if (!c || !c->finished) return std::nullopt;
    const Finished& finished = *c->finished;
    if (finished.epoch != plan.id || finished.version != config_.steps) return std::nullopt;
    end.digest = end.digest + finished.digest_part;
    end.parameters = end.parameters + finished.parameters_part;
  }
  return end;
}

void Leader::end_well(JobEnded end) {
  // The last step's record comes with every Finished, so that a new leader has it too.
  if (config_.steps > 0 && (!last_record_ || last_record_->version + 1 != config_.steps)) return;
  end.version = Version(config_.steps);
  end.reason = "done";
  if (last_record_) end.loss = last_record_->loss;
  end_proposed_ = true;
  emit(leader_command::Propose{std::move(end)});
}

}  // namespace starling::elastic
