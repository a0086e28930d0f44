#include "elastic/membership/leader.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/check.h"
#include "elastic/membership/fingerprint.h"
#include "elastic/membership/health.h"
#include "elastic/membership/placement.h"
#include "elastic/membership/preparing.h"
#include "elastic/membership/standstill.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {
Leader::Leader(LeaderConfig config, const Group& group, std::uint64_t term, std::uint64_t now_ms,
               Version told)
    : config_(std::move(config)),
      group_(group),
      term_(term),
      began_ms_(now_ms),
      now_ms_(now_ms),
      roster_(config_, group, now_ms),
      claims_(config_.elastic.lease_ms, group, roster_),
      forming_(config_, group, roster_, term),
      proposals_(term),
      told_(told),
      drafts_(config_, group) {
  if (group_.plan()) progress_.follow(*group_.plan());
  rates_ = group_.rates().size();
}

LeaderCommands Leader::announce() {
  commands_.clear();
  for (const auto& [nonce, worker] : group_.workers()) {
    tell_of(worker.join.who, WorkerChange::kJoined);
    if (worker.dead) tell_of(worker.join.who, WorkerChange::kLost);
  }
  if (group_.plan()) {
    tell(event::formed(*group_.plan()));
    tell_who_is_gone(*group_.plan());
    tell_exposure(*group_.plan());
  }
  return std::exchange(commands_, {});
}

LeaderCommands Leader::on(const LeaderEvent& event) {
  commands_.clear();
  roster_.look(now_ms_);
  review_due_ = false;
  std::visit([this](const auto& e) { on_event(e); }, event);
  if (review_due_ && !group_.end()) review();
  check_invariants();
  return std::exchange(commands_, {});
}

void Leader::on_event(const leader_event::Tick& e) {
  review_due_ = true;
  now_ms_ = e.now_ms;
  roster_.look(now_ms_);
  if (now_ms_ - resent_ms_ >= config_.retry_ms) {
    resent_ms_ = now_ms_;
    resend();
    watch_progress();
  }
}

void Leader::on_event(const leader_event::Applied& e) {
  review_due_ = true;
  proposals_.applied(e.entry);
  if (e.valid) std::visit([this](const auto& entry) { applied(entry); }, e.entry);
}

void Leader::on_event(const leader_event::Said& e) {
  if (group_.end()) {
    const JobEnded& end = *group_.end();
    send(e.from, ended(end));
    return;
  }
  // Any process with a key may ask to join, and a guard speaks for its worker. Everything else
  // counts only from workers in the log, under the name of the key that they joined with.
  const auto* worker = group_.find(e.from);
  const bool known = worker && worker->join.name == e.name;
  if (known && !std::holds_alternative<Death>(e.body)) {
    roster_.heard(e.from);
    claims_.heard(e.from);
  }
  const bool to_all = std::holds_alternative<Join>(e.body) || std::holds_alternative<Death>(e.body);
  if (known || to_all)
    std::visit([&](const auto& m) { said(e.from, e.name, m); }, e.body);
  else if (!worker && std::holds_alternative<Heartbeat>(e.body))
    send(e.from, Fenced{});  // a life so long over that the group has forgotten it
}

// ---- What follows ------------------------------------------------------------------------------

void Leader::review() {
  if (proposals_.deciding()) return;
  leave_out_evicted();
  form_for_rate();
  take(forming_.review());
  if (forming_.active() || !group_.plan() || group_.restart()) return;
  try_end();
  if (!proposals_.end()) try_prepare();
}

void Leader::propose_plan(Plan plan) {
  gone_unread_ = gone_unread(plan);
  plan.doubted_from = doubted_after(gone_unread_);
  add_rate(plan);
  if (config_.bugs.r16_obey_proposals)
    for (const Member& m : plan.members) send(m.who, Committed{plan});
  propose(std::move(plan));
}

void Leader::propose(Entry entry) {
  proposals_.proposed(entry);
  emit(leader_command::Propose{std::move(entry)});
}

void Leader::end_job(std::uint8_t code, std::string reason) {
  JobEnded end;
  end.exit_code = code;
  end.version = last_record_ ? last_record_->version + 1 : group_.start();
  end.reason = std::move(reason);
  propose(std::move(end));
}

void Leader::watch_progress() {
  if (forming_.active() || proposals_.plan() || proposals_.end()) return;
  const Standstill still = standstill(config_, group_, roster_, progress_);
  for (const Incarnation& who : still.by)
    if (roster_.warning_is_due(who, still.since_ms)) warn(warning_of(still, who, group_, roster_));
  if (!still.too_long) return;
  take(forming_.leave_out(still.by, still.since_ms, cause_of(still, roster_), still.at_any_price));
}

void Leader::try_prepare() {
  auto plan = prepare(config_, group_, roster_, progress_);
  if (!plan) return;
  plan->id = forming_.fresh_id();
  propose_plan(*std::move(plan));
}

// ---- The end ----------------------------------------------------------------------------------

// The end belongs to one epoch: a prepared plan that comes after the last vote is never entered.
void Leader::try_end() {
  for (const Plan* plan : roster_.running_plans()) {
    const auto end = end_of_finished(*plan);
    const bool others_data = std::any_of(
        plan->members.begin(), plan->members.end(),
        [&](const Member& m) { return other_data(roster_.data_of(m.who)).has_value(); });
    if (end && !others_data) return end_well(*plan, *end);
  }
}

// Ends the job when the parts of all members add up to the digests of the last version.
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

void Leader::end_well(const Plan& plan, JobEnded end) {
  // Every Finished comes with the last step's record, so that a new leader has it too.
  if (config_.steps > 0 && (!last_record_ || last_record_->version + 1 != config_.steps)) return;
  end.version = Version(config_.steps);
  end.reason = "done";
  if (last_record_) end.loss = last_record_->loss;
  tell_doubts(plan);
  propose(std::move(end));
}

// ---- What workers and guards say --------------------------------------------------------------

void Leader::said(const Incarnation& from, const std::string& name, const Join& m) {
  review_due_ = true;
  if (const auto* worker = group_.find(from)) {
    send(from, Welcome{worker->join.who, {}});
    return;
  }
  if (group_.forgotten(from)) return send(from, Fenced{});
  if (proposals_.joining(from) || kept_out_as_unreachable(from, name, m)) return;
  if (key_in_use(from, name, m)) return;
  if (m.job_hash != 0 && m.job_hash != config_.job_hash)
    return refuse(from, name, "this worker's job file differs from the group's");
  if (auto why = other_bits(m)) return refuse(from, name, *std::move(why));
  if (auto why = other_checkpoint(m)) return refuse(from, name, *std::move(why));
  if (auto why = other_data(m.data)) return refuse(from, name, *std::move(why));
  if (auto why = too_slow(m, group_, config_.elastic.slowest))
    return refuse(from, name, *std::move(why));
  if (auto clock = other_clock(name, m.machine)) warn(*std::move(clock));
  Joined joined{m};
  joined.join.who = from;
  joined.join.name = name;  // the key's name, not the claimed one
  propose(std::move(joined));
}

// Refuses a worker that asks to join. A warning tells the people at the run the reason, too, which the
// refused process prints on its own machine.
void Leader::refuse(const Incarnation& who, const std::string& name, std::string why) {
  if (refused_.size() < kRefusedTold && refused_.insert(who.nonce).second)
    warn(name + " asked to join and is refused: " + why);
  send(who, Refused{std::move(why)});
}

// Each life of an unreachable worker stops the others for a moment, so its lives are limited.
bool Leader::kept_out_as_unreachable(const Incarnation& from, const std::string& name,
                                     const Join& m) {
  const Links::Entry entry = forming_.links().entry(name);
  if (entry == Links::Entry::kFree) return false;
  if (entry == Links::Entry::kLater) {
    send(from, LeaderHint{0, term_, {}});  // so that it asks again
    return true;
  }
  send(from, Refused{"the other workers cannot connect to " + name + " at " + m.host + ":" +
                     std::to_string(m.port) +
                     "; say an address of its machine that they reach with --host, or with "
                     "--advertise where a port is forwarded"});
  return true;
}

// Tells two workers that use one key so. Returns true also while the answer is not known yet.
bool Leader::key_in_use(const Incarnation& from, const std::string& name, const Join& m) {
  const KeyClaims::Ruling ruling = claims_.ask(from, name);
  if (ruling.answer == KeyClaims::Answer::kFree) return false;
  if (ruling.answer == KeyClaims::Answer::kAskAgain) {
    send(from, LeaderHint{0, term_, {}});  // so that it asks again
    return true;
  }
  const auto place = [](const Join& join) { return join.host + ":" + std::to_string(join.port); };
  const Join& user = *ruling.user;
  const std::string cure =
      "; every worker needs a key of its own (starling keys --split, or --add)";
  send(from, Refused{"the key of " + name + " is in use by the worker at " + place(user) + cure});
  send(user.who,
       LeaderHint{0, term_,
                  "another worker, at " + place(m) + ", has come with the key of this one, " +
                      name + ", and was refused" + cure});
  warn("the key of " + name + " is used by two workers, at " + place(user) + " and at " + place(m) +
       ", which was refused" + cure);
  return true;
}

void Leader::said(const Incarnation& from, const std::string&, const Report& m) {
  review_due_ = true;
  roster_.reported(from, m);
  forming_.reported(m);
  tell_left_out(from);
}

void Leader::reached(const Incarnation& who, Version version) {
  if (roster_.reached(who, version) && progress_.seen_at(version, now_ms_)) review_due_ = true;
}

void Leader::said(const Incarnation& from, const std::string& name, const Heartbeat& m) {
  if (m.version != kNoVersion) forming_.links().reached(name);
  if (roster_.works(from, m)) review_due_ = true;
  if (m.version != kNoVersion) {
    if (group_.plan() && m.entered == group_.plan()->id) progress_.entered_at(m.version);
    if (!m.transport_why.empty()) note_transport({m.entered, m.on_device, m.transport_why});
    reached(from, m.version);
  }
  send(from, LeaderHint{0, term_, {}});
  tell_left_out(from);
  refuse_other_data(from, name);
  tell_data_wait(from, name, m.data_wait_percent);
  review_differences(m.differences);
  expel(from, name);
  // A worker was silent while workers with another fingerprint formed the group: refuse it.
  if (!roster_.waits(from)) return;
  if (auto why = other_bits(group_.find(from)->join)) send(from, Refused{*std::move(why)});
}

void Leader::note_transport(event::TransportChosen transport) {
  if (!group_.plan() || transport.epoch != group_.plan()->id || transport == transport_) return;
  transport_ = transport;
  tell(std::move(transport));
}

void Leader::said(const Incarnation& from, const std::string&, const Progress& m) {
  if (roster_.entered(from, m.epoch)) review_due_ = true;
  reached(from, m.record.version + 1);
  told_ = std::max(told_, m.record.version + 1);
  if (!last_record_ || last_record_->version <= m.record.version) last_record_ = m.record;
  take(drafts_.passed(m.record, origin()));
  end_if_skipped(m.record);
  if (epoch_ && m.epoch == epoch_->id) announce_epoch(double(now_ms_ - committed_ms_), m.pause);
  tell(event::step_of(m));
  if (auto evaluated = event::evaluated(m.record.version, m.record.evaluation))
    tell(*std::move(evaluated));
  if (!m.ledger.empty()) tell(event::ledger_of(m));
  send(from, Noted{m.record.version});  // after the events: its worker forgets the step then
}

// The members have stopped by themselves, and say the record until they hear of the end; so it does
// not matter which leader hears it first. Observers warn of skipped steps (core/observe/skips.h).
void Leader::end_if_skipped(const StepRecord& record) {
  if (!config_.stop_on_nonfinite || !record.skipped || proposals_.end()) return;
  end_job(1, "step " + std::to_string(record.version) +
                 " is skipped: a micro-batch of it is not finite (NaN or infinity), and "
                 "on_nonfinite is \"stop\"; " +
                 newest_checkpoint());
}

void Leader::said(const Incarnation& from, const std::string&, const starling::Leave& m) {
  review_due_ = true;
  roster_.noticed(from, m.notice_ms);
  const auto* worker = group_.find(from);
  if (group_.forgotten(from)) return send(from, Released{});
  if (!worker || worker->leaving) return tell_left_out(from);
  if (!proposals_.leaving(from)) propose(LeaveAnnounced{from});
}

void Leader::said(const Incarnation&, const std::string& name, const Death& m) {
  // Only the holder of the worker's own key may report its death: its guard, or the worker itself.
  const auto* worker = group_.find(m.who);
  const std::string* joining = proposals_.joining(m.who);
  const bool its_own = worker ? worker->join.name == name : joining && *joining == name;
  if (!its_own) return;
  review_due_ = true;
  roster_.died(m);
  if (roster_.member_now(m.who)) forming_.notice(now_ms_);
  if (!(worker && worker->dead) && !proposals_.losing(m.who))
    propose(Lost{m.who, /*certain=*/true});
}

void Leader::said(const Incarnation& from, const std::string&, const Finished& m) {
  review_due_ = true;
  if (auto evaluated = event::evaluated(m.version, m.evaluation)) tell(*std::move(evaluated));
  roster_.finished(from, m);
}

// Tells a former member that is left out: fenced, or released if it announced its leave.
void Leader::tell_left_out(const Incarnation& who) {
  if (group_.forgotten(who)) return send(who, Fenced{});
  const auto* worker = group_.find(who);
  if (!worker || !worker->planned || !group_.plan() || roster_.member_now(who)) return;
  if (worker->leaving)
    send(who, Released{});
  else
    send(who, Fenced{forming_.links().reason(who)});
}

// ---- What Raft committed ----------------------------------------------------------------------

void Leader::applied(const Joined& e) {
  const auto* worker = group_.find(e.join.who);
  if (!worker) return;
  roster_.joined(e.join.who);
  send(e.join.who, Welcome{worker->join.who, {}});
  tell_of(e.join.who, WorkerChange::kJoined);
}

void Leader::applied(const LeaveAnnounced& e) {
  roster_.leaves(e.who);
  if (!group_.plan() || group_.restart() || !roster_.member_now(e.who)) return;
  const auto& members = group_.plan()->members;
  std::vector<Member> staying;
  std::ranges::copy_if(members, std::back_inserter(staying), [&](const Member& m) {
    const auto* worker = group_.find(m.who);
    return worker && !worker->leaving && !worker->dead;
  });
  const Member leaver = roster_.member_of(e.who);
  const auto role = role_lacking(staying);
  if (role && holds(leaver.role) && (role == WorkerRole::kHold || staying.empty()))
    return warn(leaver.name +
                " is to leave, and no worker that stays has the state: it stays until its notice "
                "ends, or until another has taken the state over; " +
                newest_checkpoint());
  if (role == WorkerRole::kCompute && computes(leaver.role))
    warn(leaver.name +
         " is to leave, and no worker that stays computes: it goes on until its notice ends, or "
         "until another joins");
}

void Leader::applied(const Lost& e) {
  roster_.lost(e.who);
  tell_of(e.who, WorkerChange::kLost);
}

void Leader::tell_of(const Incarnation& who, WorkerChange what) {
  const auto* worker = group_.find(who);
  if (!worker) return;
  const Join& join = worker->join;
  event::WorkerChanged changed{join.who.counter, what, join.name, join.pid};
  if (what == WorkerChange::kJoined) changed.machine = join.machine;
  if (roster_.certainly_dead(who)) {
    changed.phase = roster_.meet(who).died_at;
    changed.reason = roster_.meet(who).died_of;
  }
  tell(std::move(changed));
}

void Leader::applied(const Plan& plan) {
  if (epoch_) announce_epoch();
  drafts_.epoch_begins();
  committed_ms_ = now_ms_;
  if (plan.rates.size() > std::exchange(rates_, plan.rates.size())) rate_changed();
  epoch_ = event::formed(plan);
  const auto cost = forming_.committed(plan);
  if (cost && plan.kind == PlanKind::kForced) {
    epoch_->detect_ms = double(cost->detect_ms);
    epoch_->form_ms = double(cost->form_ms);
  }
  tell_who_is_gone(plan);
  tell_gone_unread(std::exchange(gone_unread_, {}));
  if (plan.kind == PlanKind::kFresh) {
    tell_other_modules();
    tell_doubts_before(/*to_people=*/true);
  }
  tell_exposure(plan);
  roster_.follow(plan);
  progress_.follow(plan);
  progress_.begins(now_ms_);
  resent_ms_ = now_ms_;
  resend();
}

void Leader::tell_who_is_gone(const Plan& plan) {
  const auto& before = group_.predecessor();
  if (!before) return;
  for (const Member& m : before->members) {
    const auto* worker = group_.find(m.who);
    if (rank_in(plan, m.who) || roster_.certainly_dead(m.who) || !worker) continue;
    tell_of(m.who, worker->leaving ? WorkerChange::kLeft : WorkerChange::kFenced);
  }
}

void Leader::tell_exposure(const Plan& plan) {
  event::Exposed exposed{plan.id};
  exposed.wanted = wanted_replicas(plan.members, config_.replicas) + 1;
  exposed.copies_min = ~0u;
  for (const auto& holders : plan.holders) {
    const auto copies = static_cast<std::uint32_t>(holders.size());
    exposed.copies_min = std::min(exposed.copies_min, copies);
    if (copies < exposed.wanted) ++exposed.segments;
  }
  tell(exposed);
}

void Leader::announce_epoch(std::optional<double> resume_ms, std::optional<Pause> pause) {
  epoch_->resume_ms = resume_ms;
  if (epoch_->kind == PlanKind::kForced) epoch_->pause = pause;
  tell(*std::exchange(epoch_, std::nullopt));
}

void Leader::applied(const JobEnded& e) {
  if (epoch_) announce_epoch();
  for (const auto& [nonce, worker] : group_.workers()) send(worker.join.who, ended(e));
}

// Repeats every message that matters until its effect is seen.
void Leader::resend() {
  if (group_.end()) return;
  keep_what_leaves();
  keep_by_time();
  ask_checkpoint();
  take(forming_.ask_again());
  if (!group_.plan()) return;
  for (const Member* m : roster_.running_members())
    if (roster_.plan_is_due(m->who, group_.plan()->id)) send(m->who, Committed{*group_.plan()});
}

// ---- Which fields may stand beside which ------------------------------------------------------

// A leader is idle, forming, or waits for Raft (something is proposed). These checks cost the same
// however many workers there are.
void Leader::check_invariants() const {
  roster_.check_invariants();
  claims_.check_invariants();
  progress_.check_invariants();
  forming_.check_invariants();
  drafts_.check_invariants();
  STARLING_CHECK(now_ms_ >= began_ms_);
  STARLING_CHECK(resent_ms_ <= now_ms_);
  STARLING_CHECK(committed_ms_ <= now_ms_);
  if (!group_.plan()) STARLING_CHECK(!epoch_);
  if (group_.end()) STARLING_CHECK(!epoch_);
  if (epoch_) STARLING_CHECK(epoch_->id == group_.plan()->id);
  if (proposals_.damage()) STARLING_CHECK(group_.start() != 0);  // the seed cannot be damaged
}

}  // namespace starling::elastic
