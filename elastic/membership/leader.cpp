#include "elastic/membership/leader.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "elastic/membership/placement.h"
#include "elastic/membership/resume.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {

Leader::Leader(LeaderConfig config, const Group& group, std::uint64_t term, std::uint64_t now_ms)
    : config_(std::move(config)), group_(group), term_(term), began_ms_(now_ms), now_ms_(now_ms) {
  // Ids of this term may be in the log already if it was led before a restart of the same term; a
  // term has one leader, so that cannot be, but ids must rise whatever happened.
  if (group_.plan() && group_.plan()->id.term == term_) counter_ = group_.plan()->id.counter;
  if (group_.plan() && group_.plan()->kind != PlanKind::kPrepared)
    first_at_most_ = group_.plan()->base;
}

LeaderCommands Leader::on(const LeaderEvent& event) {
  commands_.clear();
  std::visit([this](const auto& e) { on_event(e); }, event);
  if (!group_.end()) review();
  return std::exchange(commands_, {});
}

void Leader::on_event(const leader_event::Tick& e) {
  now_ms_ = e.now_ms;
  if (now_ms_ - resent_ms_ >= config_.retry_ms) {
    resent_ms_ = now_ms_;
    resend();
  }
}

void Leader::on_event(const leader_event::Applied& e) {
  if (const Plan* plan = std::get_if<Plan>(&e.entry); plan && plan->id.term == term_)
    plan_proposed_ = false;
  if (e.valid) std::visit([this](const auto& entry) { applied(entry); }, e.entry);
}

void Leader::on_event(const leader_event::Said& e) {
  if (group_.end()) {
    const JobEnded& end = *group_.end();
    send(e.from, Ended{end.exit_code, end.reason, end.digest, end.loss});
    return;
  }
  if (!std::holds_alternative<Death>(e.body)) contact(e.from).heard_ms = now_ms_;
  std::visit([&](const auto& m) { said(e.from, e.name, m); }, e.body);
}

Leader::Contact& Leader::contact(const Incarnation& who) {
  const auto [it, fresh] = contacts_.try_emplace(who.nonce);
  if (fresh) it->second.heard_ms = now_ms_;
  return it->second;
}

// ---- What workers and guards say --------------------------------------------------------------

void Leader::said(const Incarnation& from, const std::string& name, const Join& m) {
  if (const auto* worker = group_.find(from)) {
    send(from, Welcome{worker->join.who, config_.job_text});
    return;
  }
  if (joining_.count(from.nonce)) return;
  if (m.job_hash != 0 && m.job_hash != config_.job_hash) {
    send(from, Refused{"this worker's job file differs from the group's"});
    return;
  }
  for (const auto& [nonce, worker] : group_.workers())
    if (worker.join.fingerprint != m.fingerprint) {
      send(from, Refused{"this worker computes other bits than the group: it has " +
                         m.fingerprint_text + ", the group has " + worker.join.fingerprint_text});
      return;
    }
  Joined joined{m};
  joined.join.who = from;
  joined.join.name = name;  // that of its key, not the one it claims
  joining_.insert(from.nonce);
  emit(leader_command::Propose{std::move(joined)});
}

void Leader::said(const Incarnation& from, const std::string&, const Report& m) {
  Contact& c = contact(from);
  if (!c.report || c.report->promise <= m.promise) c.report = m;
  if (group_.plan() && stopped_since(m) && noticed_ms_ == 0) noticed_ms_ = now_ms_;
  c.entered = std::max(c.entered, m.entered);
  tell_left_out(from);
}

void Leader::said(const Incarnation& from, const std::string&, const Heartbeat& m) {
  Contact& c = contact(from);
  c.entered = std::max(c.entered, m.entered);
  c.ready_for = m.ready_for;
  if (m.version != kNoVersion) {
    c.version = m.version;
    // A forced plan says where it begins, and a member at base - 1 has not begun it yet.
    const Plan* plan = group_.plan() ? &*group_.plan() : nullptr;
    if (plan && m.entered == plan->id && plan->kind == PlanKind::kPrepared)
      first_at_most_ = std::min(first_at_most_, m.version);
  }
  send(from, LeaderHint{0, term_});
  tell_left_out(from);
}

void Leader::said(const Incarnation& from, const std::string&, const Progress& m) {
  Contact& c = contact(from);
  c.version = m.record.version + 1;
  c.entered = std::max(c.entered, m.epoch);
  if (!last_record_ || last_record_->version <= m.record.version) last_record_ = m.record;
  if (epoch_ && m.epoch == epoch_->plan.id) announce_epoch(double(now_ms_ - committed_ms_));
  Observation step;
  step.kind = Observation::Kind::kStep;
  step.who = from;
  step.step = m;
  emit(std::move(step));
}

void Leader::said(const Incarnation& from, const std::string&, const starling::Leave& m) {
  Contact& c = contact(from);
  c.leave_by_ms = now_ms_ + m.notice_ms;
  const auto* worker = group_.find(from);
  if (!worker || worker->leaving) return tell_left_out(from);
  if (leaving_.insert(from.nonce).second) emit(leader_command::Propose{LeaveAnnounced{from}});
}

void Leader::said(const Incarnation&, const std::string& name, const Death& m) {
  // Only the guard that has the worker's own key may say so.
  const auto* worker = group_.find(m.who);
  if (!worker || worker->join.name != name) return;
  contact(m.who).dead = true;
  if (noticed_ms_ == 0) noticed_ms_ = now_ms_;
  if (!worker->dead && losing_.insert(m.who.nonce).second)
    emit(leader_command::Propose{Lost{m.who, /*certain=*/true}});
}

void Leader::said(const Incarnation& from, const std::string&, const Finished& m) {
  contact(from).finished = m;
}

// Somebody who was a member once and is no longer: fenced, or released if it announced its leave.
void Leader::tell_left_out(const Incarnation& who) {
  const auto* worker = group_.find(who);
  if (!worker || !worker->planned || !group_.plan()) return;
  for (const Plan* plan : running_plans())
    if (rank_in(*plan, who) != kNoRank) return;
  if (worker->leaving)
    send(who, Released{});
  else
    send(who, Fenced{});
}

// ---- What Raft committed ----------------------------------------------------------------------

void Leader::applied(const Joined& e) {
  joining_.erase(e.join.who.nonce);
  const auto* worker = group_.find(e.join.who);
  if (!worker) return;
  contact(e.join.who).welcomed_ms = now_ms_;
  send(e.join.who, Welcome{worker->join.who, config_.job_text});
  tell_of(e.join.who, "joined");
}

void Leader::applied(const Lost& e) {
  tell_of(e.who, "lost");
}

void Leader::tell_of(const Incarnation& who, const char* what) {
  const auto* worker = group_.find(who);
  if (!worker) return;
  Observation seen;
  seen.kind = Observation::Kind::kWorker;
  seen.what = what;
  seen.who = worker->join.who;
  seen.name = worker->join.name;
  seen.pid = worker->join.pid;
  emit(std::move(seen));
}

void Leader::applied(const Plan& plan) {
  if (epoch_) announce_epoch(-1);
  first_at_most_ = plan.kind == PlanKind::kPrepared ? kNoVersion : plan.base;
  committed_ms_ = now_ms_;
  epoch_.emplace();
  epoch_->kind = Observation::Kind::kEpoch;
  epoch_->plan = plan;
  if (forming_ && plan.id == forming_->asked) {
    epoch_->detect_ms = double(forming_->begun_ms - forming_->noticed_ms);
    epoch_->form_ms = double(now_ms_ - forming_->begun_ms);
    forming_.reset();
  }
  noticed_ms_ = 0;
  if (const auto& before = group_.predecessor())
    for (const Member& m : before->members) {
      const auto* worker = group_.find(m.who);
      if (rank_in(plan, m.who) != kNoRank || certainly_dead(m.who) || !worker) continue;
      tell_of(m.who, worker->leaving ? "left" : "fenced");
    }
  tell_exposure(plan);
  resent_ms_ = now_ms_;
  resend();
}

void Leader::tell_exposure(const Plan& plan) {
  Observation exposure;
  exposure.kind = Observation::Kind::kExposure;
  exposure.plan.id = plan.id;
  exposure.wanted = wanted_replicas(plan.members, config_.replicas) + 1;
  exposure.copies_min = ~0u;
  for (const auto& holders : plan.holders) {
    const auto copies = static_cast<std::uint32_t>(holders.size());
    exposure.copies_min = std::min(exposure.copies_min, copies);
    if (copies < exposure.wanted) ++exposure.exposed;
  }
  emit(std::move(exposure));
}

void Leader::announce_epoch(double resume_ms) {
  epoch_->resume_ms = resume_ms;
  emit(*std::exchange(epoch_, std::nullopt));
}

void Leader::applied(const JobEnded& e) {
  if (epoch_) announce_epoch(-1);
  for (const auto& [nonce, worker] : group_.workers())
    send(worker.join.who, Ended{e.exit_code, e.reason, e.digest, e.loss});
}

// Everything that matters is sent until its effect is seen.
void Leader::resend() {
  if (group_.end()) return;
  if (forming_) {
    for (const Incarnation& who : candidates()) {
      const auto& report = contact(who).report;
      if (!report || report->promise < forming_->asked) send(who, Freeze{forming_->asked});
    }
  }
  if (!group_.plan()) return;
  const Plan& plan = *group_.plan();
  std::vector<Incarnation> members;
  for (const Plan* p : running_plans())
    for (const Member& m : p->members)
      if (std::find(members.begin(), members.end(), m.who) == members.end())
        members.push_back(m.who);
  for (const Incarnation& who : members) {
    const Contact& c = contact(who);
    if (c.entered < plan.id && c.ready_for != plan.id) send(who, Committed{plan});
  }
}

// ---- Deciding ---------------------------------------------------------------------------------

void Leader::review() {
  if (plan_proposed_ || end_proposed_) return;
  if (!forming_) {
    if (!group_.plan()) {
      if (start_is_due()) form("start");
    } else if (std::string why = why_broken(); !why.empty()) {
      form(std::move(why));
    }
  }
  if (forming_)
    try_form();
  else if (group_.plan()) {
    try_end();
    if (!end_proposed_) try_prepare();
  }
}

bool Leader::start_is_due() const {
  return waiting_joiners().size() >= config_.wanted_workers ||
         now_ms_ - began_ms_ > config_.start_timeout_ms;
}

bool Leader::certainly_dead(const Incarnation& who) const {
  const auto* worker = group_.find(who);
  const auto it = contacts_.find(who.nonce);
  return (worker && worker->dead) || (it != contacts_.end() && it->second.dead);
}

std::string Leader::why_broken() const {
  for (const Plan* plan : running_plans()) {
    for (const Member& member : plan->members) {
      if (certainly_dead(member.who)) return "lost " + member.name;
      const auto it = contacts_.find(member.who.nonce);
      const std::uint64_t heard = it == contacts_.end() ? began_ms_ : it->second.heard_ms;
      if (it != contacts_.end() && it->second.report && stopped_since(*it->second.report))
        return member.name + " stopped";
      if (now_ms_ - std::max(heard, began_ms_) > config_.lease_ms)
        return member.name + " not heard for " + std::to_string(config_.lease_ms) + " ms";
    }
  }
  return {};
}

// Whether its sender will never run the last plan again. A prepared plan is not for who has
// stopped, so having stopped in its predecessor is enough.
bool Leader::stopped_since(const Report& report) const {
  const Plan& plan = *group_.plan();
  if (report.promise > plan.id) return true;
  return plan.kind == PlanKind::kPrepared && bool(plan.predecessor) &&
         report.entered >= plan.predecessor;
}

void Leader::form(std::string cause) {
  Forming forming;
  forming.noticed_ms = noticed_ms_ != 0 ? noticed_ms_ : now_ms_;
  forming.begun_ms = now_ms_;
  forming.cause = std::move(cause);
  if (forming_) {  // asked again at a higher id; the clock runs on
    forming.begun_ms = forming_->begun_ms;
    forming.noticed_ms = forming_->noticed_ms;
    forming.cause = forming_->cause;
  }
  // Fresh in this term, and above what anybody who stopped by itself may have promised (R9).
  if (group_.plan() && group_.plan()->id.term == term_)
    counter_ = std::max(counter_, group_.plan()->id.counter);
  for (const Incarnation& who : candidates())
    if (const auto& report = contact(who).report; report && report->promise.term == term_)
      counter_ = std::max(counter_, report->promise.counter - 1);
  forming.asked = EpochId{term_, ++counter_};
  forming_ = std::move(forming);
  for (const Incarnation& who : candidates()) {
    const auto& report = contact(who).report;
    if (!report || report->promise < forming_->asked) send(who, Freeze{forming_->asked});
  }
}

bool Leader::all_entered() const {
  const Plan& plan = *group_.plan();
  return std::all_of(plan.members.begin(), plan.members.end(), [&](const Member& m) {
    const auto it = contacts_.find(m.who.nonce);
    return it != contacts_.end() && it->second.entered >= plan.id;
  });
}

std::vector<const Plan*> Leader::running_plans() const {
  std::vector<const Plan*> plans{&*group_.plan()};
  if (group_.plan()->kind == PlanKind::kPrepared && group_.predecessor() && !all_entered())
    plans.push_back(&*group_.predecessor());
  return plans;
}

std::vector<Incarnation> Leader::waiting_joiners() const {
  std::vector<Incarnation> joiners;
  for (const auto& [nonce, worker] : group_.workers())
    if (!worker.planned && !worker.leaving && !certainly_dead(worker.join.who))
      joiners.push_back(worker.join.who);
  std::sort(joiners.begin(), joiners.end(),
            [](const auto& a, const auto& b) { return a.counter < b.counter; });
  return joiners;
}

// In the order of the new ranks: survivors keep theirs, joiners come last.
std::vector<Incarnation> Leader::candidates() const {
  std::vector<Incarnation> all;
  if (group_.plan())
    for (const Plan* plan : running_plans())
      for (const Member& m : plan->members)
        if (std::find(all.begin(), all.end(), m.who) == all.end()) all.push_back(m.who);
  for (const Incarnation& who : waiting_joiners()) all.push_back(who);
  return all;
}

void Leader::try_form() {
  std::vector<Reporter> reporters;
  std::vector<Incarnation> missing;
  for (const Incarnation& who : candidates()) {
    if (certainly_dead(who)) continue;
    const Contact& c = contact(who);
    if (c.report && c.report->promise > forming_->asked && c.report->promise.term == term_)
      return form(forming_->cause);
    const auto* worker = group_.find(who);
    const bool counts = c.report && (c.report->promise == forming_->asked ||  // R11
                                     config_.bugs.r11_any_report);
    if (counts)
      reporters.push_back({who, *c.report, worker && worker->leaving});
    else
      missing.push_back(who);
  }
  if (config_.bugs.r11_any_member)
    for (const auto& [nonce, c] : contacts_) {
      const bool known = std::any_of(reporters.begin(), reporters.end(),
                                     [&](const Reporter& r) { return r.who.nonce == nonce; });
      if (!known && c.report && !c.dead) reporters.push_back({Incarnation{0, nonce}, *c.report});
    }

  auto resume = resume_rule(reporters, group_, config_.bugs);
  const bool state_lost = !resume && resume.error().code() == Code::kStateLost;
  if (!resume && !state_lost) return end_job(5, resume.error().text());
  const Version base = resume ? resume.value().base : 0;
  for (const Incarnation& who : missing)
    if (must_wait_for(who, reporters, base)) return;

  const bool first = !group_.plan();
  const bool may_form = first || fenced(reporters) || config_.bugs.r11_no_fence;
  std::erase_if(reporters, [&](const Reporter& r) { return !goes_on(r.report, base); });
  if (first && reporters.size() < config_.wanted_workers) {
    if (now_ms_ - began_ms_ <= config_.start_timeout_ms) return;
    return end_job(3, std::to_string(reporters.size()) + " of " +
                          std::to_string(config_.wanted_workers) + " workers came within " +
                          std::to_string(config_.start_timeout_ms) + " ms");
  }
  const bool patience = now_ms_ - forming_->begun_ms <= config_.state_timeout_ms;
  if (reporters.empty() || state_lost) {
    if (!missing.empty() && patience) return;
    return lose_state(reporters, base);
  }
  if (!resume.value().fresh) leave_out_bad_link(reporters, base);
  if (!may_form) {
    if (!patience) lose_state(reporters, base);
    return;
  }
  propose_forced(std::move(reporters), resume.value());
}

// One that is not certainly dead is dropped only if it is silent or late, and not needed.
bool Leader::must_wait_for(const Incarnation& who, const std::vector<Reporter>& reporters,
                           Version base) const {
  const Contact& c = contacts_.at(who.nonce);
  const bool silent = now_ms_ - std::max(c.heard_ms, began_ms_) > config_.lease_ms;
  const bool late = now_ms_ - forming_->begun_ms > config_.report_deadline_ms;
  if (!silent && !late) return true;
  const auto* worker = group_.find(who);
  if (!worker || !worker->planned || base == 0) return false;  // holds nothing that is needed
  if (now_ms_ - forming_->begun_ms > config_.state_timeout_ms) return false;
  for (SegmentId s = 0; s < config_.segments; ++s)
    if (std::none_of(reporters.begin(), reporters.end(),
                     [&](const Reporter& r) { return current_copy(r.report, s, base); }))
      return true;
  return false;
}

// R11: every epoch that may still run has a member among the reporters, or all its members are
// dead.
bool Leader::fenced(const std::vector<Reporter>& reporters) const {
  for (const Plan* plan : running_plans()) {
    const bool reported = std::any_of(reporters.begin(), reporters.end(), [&](const Reporter& r) {
      return rank_in(*plan, r.who) != kNoRank;
    });
    const bool all_dead = std::all_of(plan->members.begin(), plan->members.end(),
                                      [&](const Member& m) { return certainly_dead(m.who); });
    if (!reported && !all_dead) return false;
  }
  return true;
}

// If two successive plans break on the same pair, the next leaves one of the two out: the one with
// more broken links, else the higher rank.
void Leader::leave_out_bad_link(std::vector<Reporter>& reporters, Version base) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> links;
  std::map<std::uint64_t, int> count;
  const auto place = [&](std::uint64_t nonce) {
    return std::find_if(reporters.begin(), reporters.end(),
                        [&](const Reporter& r) { return r.who.nonce == nonce; });
  };
  for (const Reporter& r : reporters)
    for (const Incarnation& peer : r.report.broken)
      if (place(peer.nonce) != reporters.end() &&
          links.insert(std::minmax(r.who.nonce, peer.nonce)).second) {
        ++count[r.who.nonce];
        ++count[peer.nonce];
      }
  for (const auto& link : links) {
    if (!bad_links_.count(link)) continue;
    auto a = place(link.first), b = place(link.second);
    if (a == reporters.end() || b == reporters.end()) continue;
    if (a > b) std::swap(a, b);  // b has the higher rank
    const auto victim = count[a->who.nonce] > count[b->who.nonce] ? a : b;
    std::vector<Reporter> others = reporters;
    others.erase(others.begin() + (victim - reporters.begin()));
    bool needed = others.empty();
    for (SegmentId s = 0; s < config_.segments && !needed; ++s)
      needed = std::none_of(others.begin(), others.end(),
                            [&](const Reporter& r) { return current_copy(r.report, s, base); });
    auto rule = resume_rule(others, group_, config_.bugs);
    if (needed || !rule || rule.value().base != base || !fenced(others)) continue;
    reporters = std::move(others);
    break;
  }
  bad_links_ = std::move(links);
}

Member Leader::member_of(const Incarnation& who) const {
  Member member;
  member.who = who;
  if (const auto* worker = group_.find(who)) {
    member.who = worker->join.who;
    member.name = worker->join.name;
    member.host = worker->join.host;
    member.port = worker->join.port;
    member.failure_domain = worker->join.failure_domain;
    member.draining = worker->leaving;
  }
  return member;
}

void Leader::propose_forced(std::vector<Reporter> reporters, const Resume& old) {
  // Leaving somebody out may have changed the point of the step loop, never the base.
  auto again = resume_rule(reporters, group_, config_.bugs);
  const Resume resume = again ? again.value() : old;
  Plan plan;
  plan.id = forming_->asked;
  plan.predecessor = group_.plan() ? group_.plan()->id : EpochId{};
  plan.kind = resume.fresh ? PlanKind::kFresh : PlanKind::kForced;
  plan.base = resume.base;
  plan.begin = resume.begin;
  plan.cause = forming_->cause;

  PlacementInput in;
  in.segments = config_.segments;
  in.bucket_segments = config_.bucket_segments;
  in.replicas = config_.replicas;
  in.budget = config_.move_budget;
  for (const Reporter& r : reporters) {
    plan.members.push_back(member_of(r.who));
    plan.members.back().joiner = !resume.fresh && r.report.version == kNoVersion;
    auto& copies = in.copies.emplace_back(config_.segments);
    for (SegmentId s = 0; s < config_.segments; ++s)
      copies[s] = resume.fresh || current_copy(r.report, s, resume.base);
  }
  in.members = plan.members;
  Placement placement = place(in);
  if (!placement.complete) {
    const bool patience = now_ms_ - forming_->begun_ms <= config_.state_timeout_ms;
    const bool somebody_may_come = std::any_of(
        group_.plan()->members.begin(), group_.plan()->members.end(),
        [&](const Member& m) { return !certainly_dead(m.who) && rank_in(plan, m.who) == kNoRank; });
    if (!(patience && somebody_may_come)) lose_state(reporters, resume.base);
    return;
  }
  if (config_.bugs.r13_any_owner) placement.holders = target_holders(in);
  plan.holders = std::move(placement.holders);
  plan.moves = std::move(placement.moves);
  if (plan.base < config_.steps) {
    auto shares = deal_shares(reporters, plan.base, config_.micro_batches, config_.bugs);
    if (!shares) return end_job(5, shares.error().text());
    plan.shares = std::move(shares).value();
  }
  propose_plan(std::move(plan));
}

void Leader::propose_plan(Plan plan) {
  plan_proposed_ = true;
  if (config_.bugs.r16_obey_proposals)
    for (const Member& m : plan.members) send(m.who, Committed{plan});
  emit(leader_command::Propose{std::move(plan)});
}

void Leader::lose_state(const std::vector<Reporter>& reporters, Version base) {
  std::string names, last;
  for (SegmentId s = 0; s < config_.segments; ++s) {
    if (std::any_of(reporters.begin(), reporters.end(),
                    [&](const Reporter& r) { return current_copy(r.report, s, base); }))
      continue;
    const std::string name = s < config_.tensors.size() ? config_.tensors[s] : "segment";
    if (name == last) continue;
    last = name;
    std::string holders;
    if (group_.plan())
      for (Rank r : group_.plan()->holders[s])
        holders += (holders.empty() ? "" : ", ") + group_.plan()->members[r].name;
    if (names.size() < 400)
      names += (names.empty() ? "" : "; ") + name + " (held by " + holders + ")";
  }
  end_job(4, "state lost: no living worker has a current copy of " + names +
                 "; there is no checkpoint to start from");
}

void Leader::end_job(std::uint8_t code, std::string reason) {
  end_proposed_ = true;
  JobEnded end;
  end.exit_code = code;
  end.reason = std::move(reason);
  emit(leader_command::Propose{std::move(end)});
}

// ---- Changes that stop nobody -----------------------------------------------------------------

bool Leader::moves_done() const {
  const Plan& plan = *group_.plan();
  std::uint32_t last = 0;
  for (const Move& move : plan.moves) last = std::max(last, move.step_offset);
  if (first_at_most_ == kNoVersion) return plan.moves.empty();
  for (const Member& m : plan.members) {
    const auto it = contacts_.find(m.who.nonce);
    // One that is past the last move's step saw everybody's vote for it, the targets' among them.
    if (it != contacts_.end() && it->second.version != kNoVersion &&
        it->second.entered == plan.id && it->second.version > first_at_most_ + last)
      return true;
  }
  return plan.moves.empty();
}

// Copies that are current in the running epoch whatever the step: a move under way does not count.
std::vector<std::vector<bool>> Leader::copies_now(const Plan& plan) const {
  std::vector<std::vector<bool>> copies(plan.members.size(), std::vector<bool>(config_.segments));
  for (SegmentId s = 0; s < config_.segments; ++s)
    for (Rank r : plan.holders[s]) copies[r][s] = true;
  if (moves_done() || config_.bugs.prepared_holders_moving)
    for (const Move& move : plan.moves)
      for (SegmentId s = move.segments.first; s < move.segments.first + move.segments.count; ++s)
        copies[move.target][s] = true;
  return copies;
}

void Leader::try_prepare() {
  const Plan& now = *group_.plan();
  if (!all_entered()) return;
  for (const Member& m : now.members) {
    const Contact& c = contacts_.at(m.who.nonce);
    if (c.version != kNoVersion && c.version >= config_.steps) return;  // the end: nothing changes
  }
  const auto copies = copies_now(now);

  // Leavers go when enough copies exist without them, or their notice ends.
  const auto copies_without_leavers = [&](SegmentId s) {
    std::uint32_t n = 0;
    for (Rank r = 0; r < now.members.size(); ++r) {
      const auto* worker = group_.find(now.members[r].who);
      n += copies[r][s] && !(worker && worker->leaving);
    }
    return n;
  };
  std::uint32_t staying = 0, fewest = ~0u;
  bool notice_over = false;
  for (const Member& m : now.members) {
    const auto* worker = group_.find(m.who);
    if (!worker || !worker->leaving) ++staying;
    const Contact& c = contacts_.at(m.who.nonce);
    if (worker && worker->leaving && c.leave_by_ms != 0 &&
        now_ms_ + config_.lease_ms > c.leave_by_ms)
      notice_over = true;
  }
  for (SegmentId s = 0; s < config_.segments; ++s)
    fewest = std::min(fewest, copies_without_leavers(s));
  const std::uint32_t wanted = std::min(config_.replicas, staying == 0 ? 0 : staying - 1) + 1;
  const bool leavers_go = staying > 0 && (fewest >= wanted || (notice_over && fewest >= 1));

  Plan plan;
  plan.kind = PlanKind::kPrepared;
  plan.predecessor = now.id;
  PlacementInput in;
  bool changed = false;
  for (Rank r = 0; r < now.members.size(); ++r) {
    Member member = member_of(now.members[r].who);
    if (member.draining && leavers_go) {
      changed = true;
      plan.cause = member.name + " leaves";
      continue;
    }
    if (member.draining != now.members[r].draining) {
      changed = true;
      plan.cause = member.name + " announced its leave";
    }
    plan.members.push_back(std::move(member));
    in.copies.push_back(copies[r]);
  }
  bool window_over = false;
  const auto joiners = waiting_joiners();
  for (const Incarnation& who : joiners)
    window_over = window_over || now_ms_ - contact(who).welcomed_ms >= config_.join_window_ms;
  if (window_over) {
    for (const Incarnation& who : joiners) {
      if (now_ms_ - contact(who).heard_ms > config_.lease_ms) continue;
      changed = true;
      plan.members.push_back(member_of(who));
      plan.members.back().joiner = true;
      in.copies.emplace_back(config_.segments);
      plan.cause = plan.members.back().name + " joins";
    }
  }
  in.segments = config_.segments;
  in.bucket_segments = config_.bucket_segments;
  in.replicas = config_.replicas;
  in.budget = config_.move_budget;
  in.members = plan.members;
  const bool promote = !changed && !now.moves.empty() && moves_done();
  if (!changed && !promote) return;
  if (promote) plan.cause = "moves done";
  Placement placement = place(in);
  if (!placement.complete) return;  // the leave waits (design: nobody else can hold the state)
  plan.id = EpochId{term_, ++counter_};
  plan.holders = std::move(placement.holders);
  plan.moves = std::move(placement.moves);
  propose_plan(std::move(plan));
}

// ---- The end ----------------------------------------------------------------------------------

// Of one epoch: a prepared plan that comes after the last vote is never entered.
void Leader::try_end() {
  for (const Plan* plan : running_plans())
    if (const auto digest = digest_of_finished(*plan)) return end_well(*digest);
}

std::optional<Digest> Leader::digest_of_finished(const Plan& plan) const {
  Digest digest{};
  for (const Member& m : plan.members) {
    const auto it = contacts_.find(m.who.nonce);
    if (it == contacts_.end() || !it->second.finished) return std::nullopt;
    const Finished& finished = *it->second.finished;
    if (finished.epoch != plan.id || finished.version != config_.steps) return std::nullopt;
    digest = digest + finished.digest_part;
  }
  return digest;
}

void Leader::end_well(const Digest& digest) {
  JobEnded end;
  end.digest = digest;
  // The last step's record comes with every Finished, so that a new leader has it too.
  if (config_.steps > 0 && (!last_record_ || last_record_->version + 1 != config_.steps)) return;
  end.version = config_.steps;
  end.reason = "done";
  if (last_record_) end.loss = last_record_->loss;
  end_proposed_ = true;
  emit(leader_command::Propose{std::move(end)});
}

}  // namespace starling::elastic
