#include "elastic/membership/leader.h"

#include <algorithm>
#include <utility>

#include "elastic/membership/placement.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {
namespace {
constexpr std::size_t kUnreachedMax = 3;  // lives of one name
}

Leader::Leader(LeaderConfig config, const Group& group, std::uint64_t term, std::uint64_t now_ms)
    : config_(std::move(config)), group_(group), term_(term), began_ms_(now_ms), now_ms_(now_ms) {
  // Ids of this term may be in the log already if it was led before a restart of the same term; a
  // term has one leader, so that cannot be, but ids must rise whatever happened.
  if (group_.plan() && group_.plan()->id.term == term_) counter_ = group_.plan()->id.counter;
  if (group_.plan() && group_.plan()->kind != PlanKind::kPrepared)
    first_at_most_ = group_.plan()->base;
  restarted_ms_ = now_ms;
}

LeaderCommands Leader::announce() {
  commands_.clear();
  for (const auto& [nonce, worker] : group_.workers()) {
    tell_of(worker.join.who, "joined");
    if (worker.dead) tell_of(worker.join.who, "lost");
  }
  if (group_.plan()) {
    Observation epoch;
    epoch.kind = Observation::Kind::kEpoch;
    epoch.plan = *group_.plan();
    epoch.detect_ms = epoch.form_ms = epoch.resume_ms = -1;
    emit(std::move(epoch));
    tell_who_is_gone(*group_.plan());
    tell_exposure(*group_.plan());
  }
  return std::exchange(commands_, {});
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
  if (std::holds_alternative<Restarted>(e.entry)) plan_proposed_ = false;
  if (std::holds_alternative<Damaged>(e.entry)) damage_proposed_ = false;
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
  if (joining_.count(from.nonce) || refused_as_unreachable(from, name, m)) return;
  if (m.job_hash != 0 && m.job_hash != config_.job_hash) {
    send(from, Refused{"this worker's job file differs from the group's"});
    return;
  }
  for (const Checkpoint& checkpoint : group_.checkpoints())
    if (checkpoint.fingerprint != m.fingerprint) {
      send(from, Refused{"this worker computes other bits than the checkpoint of step " +
                         std::to_string(checkpoint.version) + ": it has " + m.fingerprint_text +
                         ", the checkpoint has " + checkpoint.fingerprint_text});
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
  joining_.emplace(from.nonce, name);
  emit(leader_command::Propose{std::move(joined)});
}

// Every life of it stops the others for a moment, so it is not let in for ever.
bool Leader::refused_as_unreachable(const Incarnation& from, const std::string& name,
                                    const Join& m) {
  const auto it = unreached_.find(name);
  if (it == unreached_.end() || it->second.size() < kUnreachedMax) return false;
  unreached_.erase(it);  // it may be mended and started again
  send(from, Refused{"the other workers cannot connect to " + name + " at " + m.host + ":" +
                     std::to_string(m.port) +
                     "; say an address of its machine that they reach with --host, or with "
                     "--advertise where a port is forwarded"});
  return true;
}

void Leader::said(const Incarnation& from, const std::string&, const Report& m) {
  Contact& c = contact(from);
  if (!c.report || c.report->promise <= m.promise) c.report = m;
  c.micro_batch_ns = m.micro_batch_ns;
  if (group_.plan() && stopped_since(m) && noticed_ms_ == 0) noticed_ms_ = now_ms_;
  c.entered = std::max(c.entered, m.entered);
  tell_left_out(from);
}

void Leader::said(const Incarnation& from, const std::string& name, const Heartbeat& m) {
  Contact& c = contact(from);
  if (m.version != kNoVersion) unreached_.erase(name);
  c.entered = std::max(c.entered, m.entered);
  c.ready_for = m.ready_for;
  c.micro_batch_ns = m.micro_batch_ns;
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
  note_digest(m.record);
  if (epoch_ && m.epoch == epoch_->plan.id)
    announce_epoch(double(now_ms_ - committed_ms_), m.pause);
  Observation step;
  step.kind = Observation::Kind::kStep;
  step.who = from;
  step.step = m;
  emit(std::move(step));
  send(from, Noted{m.record.version});  // after the event: who is told so forgets the step
}

void Leader::said(const Incarnation& from, const std::string&, const starling::Leave& m) {
  Contact& c = contact(from);
  c.leave_by_ms = now_ms_ + m.notice_ms;
  const auto* worker = group_.find(from);
  if (!worker || worker->leaving) return tell_left_out(from);
  if (leaving_.insert(from.nonce).second) emit(leader_command::Propose{LeaveAnnounced{from}});
}

void Leader::said(const Incarnation&, const std::string& name, const Death& m) {
  // Only who has the worker's own key may say so: its guard, or itself with its last word.
  const auto* worker = group_.find(m.who);
  const auto joining = joining_.find(m.who.nonce);
  const bool its_own =
      worker ? worker->join.name == name : joining != joining_.end() && joining->second == name;
  if (!its_own) return;
  Contact& c = contact(m.who);
  c.dead = true;
  c.died_at = m.phase;
  c.died_of = m.reason;
  if (noticed_ms_ == 0 && member_now(m.who)) noticed_ms_ = now_ms_;
  if (!(worker && worker->dead) && losing_.insert(m.who.nonce).second)
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

void Leader::applied(const LeaveAnnounced& e) {
  contact(e.who).leaving_ms = now_ms_;
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
  if (certainly_dead(who)) {
    seen.phase = contact(who).died_at;
    seen.reason = contact(who).died_of;
  }
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
  tell_who_is_gone(plan);
  tell_exposure(plan);
  resent_ms_ = now_ms_;
  resend();
}

void Leader::tell_who_is_gone(const Plan& plan) {
  const auto& before = group_.predecessor();
  if (!before) return;
  for (const Member& m : before->members) {
    const auto* worker = group_.find(m.who);
    if (rank_in(plan, m.who) != kNoRank || certainly_dead(m.who) || !worker) continue;
    tell_of(m.who, worker->leaving ? "left" : "fenced");
  }
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

void Leader::announce_epoch(double resume_ms, std::optional<Pause> pause) {
  epoch_->resume_ms = resume_ms;
  epoch_->pause = pause;
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

}  // namespace starling::elastic
