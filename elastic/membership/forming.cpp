#include "elastic/membership/forming.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/check.h"
#include "core/base/exit.h"
#include "elastic/membership/placement.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {

using namespace forming_command;
static constexpr const char* kStopped = " stopped";  // behind a name

static std::string not_heard(const Member& member, Roster& roster) {
  return member.name + " not heard for " + std::to_string(roster.tolerance()) + " ms";
}

// A member stops because of another one, whose death may be heard later, or never: its guard and
// the leader that was told may be lost with it.
static std::string why_stopped(Roster& roster, const std::vector<Reporter>& reporters,
                               const std::string& else_this) {
  if (const Member* dead = roster.dead_member()) return "lost " + dead->name;
  for (const Plan* plan : roster.running_plans())
    for (const Member& m : plan->members) {
      const auto of_member = [&](const Reporter& r) { return r.who == m.who; };
      if (roster.silent(m.who) && std::none_of(reporters.begin(), reporters.end(), of_member))
        return not_heard(m, roster);
    }
  return else_this;
}

Forming::Forming(const LeaderConfig& config, const Group& group, Roster& roster, std::uint64_t term)
    : config_(config),
      group_(group),
      roster_(roster),
      term_(term),
      began_ms_(roster.now_ms()),
      restarted_ms_(roster.now_ms()),
      links_(roster) {
  // The log may have ids of this term already if the term was led before a restart. A term has one
  // leader, so that cannot be, but ids must rise whatever happened.
  if (group_.plan() && group_.plan()->id.term == term_) counter_ = group_.plan()->id.counter;
}

// ---- Notices ----------------------------------------------------------------------------------

void Forming::notice(std::uint64_t at_ms) {
  if (noticed_ms_ == 0) noticed_ms_ = at_ms;
}

void Forming::reported(const Report& report) {
  if (group_.plan() && stopped_since(report)) notice(roster_.now_ms());
}

std::optional<Forming::Cost> Forming::committed(const Plan& plan) {
  std::optional<Cost> cost;
  if (question_ && plan.id == question_->asked) {
    cost = {question_->begun_ms - question_->noticed_ms, roster_.now_ms() - question_->begun_ms};
    question_.reset();
  }
  noticed_ms_ = 0;
  return cost;
}

void Forming::restarts() {
  question_.reset();
  links_.forget();
  noticed_ms_ = 0;
  restarted_ms_ = roster_.now_ms();
}

// ---- The question -----------------------------------------------------------------------------

FormingCommands Forming::review() {
  if (!question_)
    if (std::string why = reason(); !why.empty()) ask(std::move(why));
  if (question_) decide();
  return std::exchange(commands_, {});
}

std::string Forming::reason() {
  if (group_.restart())
    return newcomers_are_there() ? "restart from step " + std::to_string(group_.start()) : "";
  if (!group_.plan()) return start_is_due() ? "start" : "";
  std::string why = why_broken();
  if (const Member* gone = why.empty() ? nullptr : roster_.told_to_go())
    return gone->name + " was told to go";
  return why;
}

bool Forming::start_is_due() const {
  return roster_.waiting_joiners().size() >= config_.wanted_workers ||
         roster_.now_ms() - began_ms_ > config_.elastic.start_timeout_ms;
}

// Waits for as many joiners as there were members, or until one has waited for the window.
bool Forming::newcomers_are_there() const {
  const std::uint64_t now_ms = roster_.now_ms();
  if (now_ms - restarted_ms_ > config_.elastic.start_timeout_ms) return true;
  const auto newcomers = roster_.waiting_joiners();
  if (newcomers.size() >= group_.plan()->members.size()) return true;
  return std::any_of(newcomers.begin(), newcomers.end(), [&](const Incarnation& who) {
    const Contact* c = roster_.find(who);
    const std::uint64_t since = c ? c->welcomed_ms : began_ms_;
    return now_ms - std::max(since, restarted_ms_) >= config_.restart_window_ms;
  });
}

std::string Forming::why_broken() {
  if (const Member* dead = roster_.dead_member()) return "lost " + dead->name;
  for (const Plan* plan : roster_.running_plans()) {
    for (const Member& member : plan->members) {
      const Contact* c = roster_.find(member.who);
      if (c && c->report && stopped_since(*c->report)) return member.name + kStopped;
      if (roster_.silent(member.who)) return not_heard(member, roster_);
    }
  }
  return {};
}

// Whether the sender of this report will never run the last plan again. A prepared plan is not for
// a worker that has stopped, so having stopped in its predecessor is enough.
bool Forming::stopped_since(const Report& report) const {
  const Plan& plan = *group_.plan();
  if (report.promise > plan.id) return true;
  return plan.kind == PlanKind::kPrepared && bool(plan.predecessor) &&
         report.entered >= plan.predecessor;
}

// Asks for reports. Asking again uses a higher epoch id but keeps the time at which it began.
void Forming::ask(std::string cause) {
  if (!question_) {
    question_ = Question{};
    question_->begun_ms = roster_.now_ms();
    question_->noticed_ms = noticed_ms_ != 0 ? noticed_ms_ : roster_.now_ms();
    question_->cause = std::move(cause);
  }
  // The id is fresh in this term, and above promises of workers that stopped by themselves (R9).
  if (group_.plan() && group_.plan()->id.term == term_)
    counter_ = std::max(counter_, group_.plan()->id.counter);
  for (const Incarnation& who : roster_.candidates())
    if (const auto& report = roster_.meet(who).report; report && report->promise.term == term_)
      counter_ = std::max(counter_, report->promise.counter - 1);
  question_->asked = fresh_id();
  ask_who_has_not_reported();
}

FormingCommands Forming::ask_again() {
  if (question_) ask_who_has_not_reported();
  return std::exchange(commands_, {});
}

void Forming::ask_who_has_not_reported() {
  for (const Incarnation& who : roster_.candidates()) {
    const auto& report = roster_.meet(who).report;
    if (!report || report->promise < question_->asked)
      commands_.push_back(Ask{who, question_->asked});
  }
}

FormingCommands Forming::leave_out(const std::vector<Incarnation>& who, std::uint64_t since_ms,
                                   std::string cause, bool at_any_price) {
  STARLING_CHECK(!question_);
  STARLING_CHECK(!who.empty());
  notice(since_ms);
  ask(std::move(cause));
  for (const Incarnation& w : who) question_->without.insert(w.nonce);
  question_->at_any_price = at_any_price;
  return std::exchange(commands_, {});
}

FormingCommands Forming::form_anew(std::string cause) {
  STARLING_CHECK(!question_);
  notice(roster_.now_ms());
  ask(std::move(cause));
  question_->nothing_is_wrong = true;
  return std::exchange(commands_, {});
}

void Forming::leave_out_too(const Incarnation& who) {
  STARLING_CHECK(question_);
  question_->without.insert(who.nonce);
}

// ---- The answers ------------------------------------------------------------------------------

std::optional<Forming::Answers> Forming::answers() {
  Answers all;
  std::vector<Reporter> stuck;
  std::vector<Incarnation> stuck_missing;
  for (const Incarnation& who : roster_.candidates()) {
    if (roster_.certainly_dead(who)) {
      all.lost = true;
      continue;
    }
    const Contact& c = roster_.meet(who);
    if (c.report && c.report->promise > question_->asked && c.report->promise.term == term_) {
      ask({});
      return std::nullopt;
    }
    const bool counts = c.report && (c.report->promise == question_->asked ||  // R11
                                     config_.bugs.r11_any_report);
    const bool holds_up = question_->without.count(who.nonce) != 0;
    if (counts)
      (holds_up ? stuck : all.reporters).push_back({who, *c.report});
    else if (holds_up)
      stuck_missing.push_back(who);
    else if (in_time(who))
      return std::nullopt;
    else
      all.missing.push_back(who);
  }
  // Leave out the workers that hold up all others, unless that would lose state.
  if (!question_->without.empty()) all.lost = true;
  if (!question_->without.empty() && !question_->at_any_price && !suffice(all.reporters)) {
    std::move(stuck.begin(), stuck.end(), std::back_inserter(all.reporters));
    all.missing.insert(all.missing.end(), stuck_missing.begin(), stuck_missing.end());
  }
  if (config_.bugs.r11_any_member)
    for (const auto& [nonce, c] : roster_.contacts()) {
      const bool known =
          std::any_of(all.reporters.begin(), all.reporters.end(),
                      [&, same = nonce](const Reporter& r) { return r.who.nonce == same; });
      if (!known && c.report && !c.dead)
        all.reporters.push_back({Incarnation{0, nonce}, *c.report});
    }
  return all;
}

// Whether a report may still come as soon as can be expected: its sender is heard, and not later
// than the other workers are.
bool Forming::in_time(const Incarnation& who) {
  const std::uint64_t waited = roster_.now_ms() - question_->begun_ms;
  return !roster_.silent(who) &&
         (waited <= config_.report_deadline_ms || waited <= roster_.tolerance());
}

bool Forming::patient() const {
  return !question_->at_any_price &&
         roster_.now_ms() - question_->begun_ms <= config_.elastic.state_timeout_ms;
}

void Forming::decide() {
  auto all = answers();
  if (!all) return;
  std::vector<Reporter>& reporters = all->reporters;
  const auto resume = resume_rule(reporters, group_, config_.bugs);
  const bool died = died_with_its_steps(reporters) && !config_.bugs.r11_revive_leaver;
  const bool state_lost = died || (!resume && resume.error().code() == Code::kStateLost);
  if (!resume && !state_lost) return end(kExitInternal, resume.error().text());
  const Version base = resume ? resume.value().base : Version{0};
  for (const Incarnation& who : all->missing)
    if (needed(who, reporters, base)) return;

  const bool first = !group_.plan() || group_.restart();
  const bool may_form = first || fenced(reporters) || config_.bugs.r11_no_fence;
  std::erase_if(reporters, [&](const Reporter& r) { return !goes_on(r.report, base); });
  if (group_.restart()) {
    if (reporters.empty()) return no_newcomer();
  } else if (first && reporters.size() < config_.wanted_workers) {
    if (roster_.now_ms() - began_ms_ <= config_.elastic.start_timeout_ms) return;
    return end(kExitAlone, std::to_string(reporters.size()) + " of " +
                               std::to_string(config_.wanted_workers) + " workers came within " +
                               std::to_string(config_.elastic.start_timeout_ms) +
                               " ms, [elastic].start_timeout_ms");
  }
  if (reporters.empty() || state_lost) {
    if (!all->missing.empty() && patient()) return;
    return lose_state(reporters, died ? kNoVersion : base);
  }
  if (!may_form) {
    if (!patient())
      end(kExitStateLost, "state lost: epoch " + to_string(group_.plan()->id) +
                              " may still run, but none of its members has reported for " +
                              std::to_string(config_.elastic.state_timeout_ms) + " ms; " +
                              newest_checkpoint());
    return;
  }
  if (const auto role = lacking(reporters, resume.value())) {
    // No role helps where state is gone.
    if (!resume.value().fresh && !all_copied(reporters, config_.segments, base))
      return lack_state(reporters, base);
    return wait_for(*role, reporters.size(), first);
  }
  if (all->lost || !all->missing.empty() || question_->nothing_is_wrong) {
    forget_links(all->missing, reporters);
  } else if (const auto apart = leave_out_bad_links(reporters, resume.value())) {
    if (roster_.now_ms() - apart->since_ms > config_.elastic.state_timeout_ms)
      return lose_apart(reporters, *apart);
  }
  propose(std::move(reporters), resume.value());
}

// A member that has not reported may have what these lack: until it is dead, or for a time.
void Forming::lack_state(const std::vector<Reporter>& reporters, Version base) {
  const auto& members = group_.plan()->members;
  const bool somebody_may_come = std::ranges::any_of(members, [&](const Member& m) {
    return !roster_.certainly_dead(m.who) &&
           std::ranges::find(reporters, m.who, &Reporter::who) == reporters.end();
  });
  if (!(patient() && somebody_may_come)) lose_state(reporters, base);
}

// The role that an epoch of these reporters waits for. At the last version nothing is computed, and
// state that nobody can hold is lost.
std::optional<WorkerRole> Forming::lacking(const std::vector<Reporter>& reporters,
                                           const Resume& resume) const {
  std::vector<Member> members;
  for (const Reporter& r : reporters) members.push_back(roster_.member_of(r.who));
  const auto role = role_lacking(members);
  const bool waits = role == WorkerRole::kHold ? resume.fresh : resume.base < config_.steps;
  return waits ? role : std::nullopt;
}

// The members have stopped and keep what they have, so the next joiner's report goes on from here,
// whenever it comes. Only a start has a time limit.
void Forming::wait_for(WorkerRole role, std::size_t workers, bool start) {
  const std::string none = "none of " + std::to_string(workers) + " workers " +
                           (role == WorkerRole::kHold ? "holds state" : "computes");
  if (start && roster_.now_ms() - restarted_ms_ > config_.elastic.start_timeout_ms)
    return end(kExitAlone, none + ", as --role tells them, and no other came within " +
                               std::to_string(config_.elastic.start_timeout_ms) +
                               " ms, [elastic].start_timeout_ms");
  if (std::exchange(question_->told_lacking, role) != role)
    commands_.push_back(
        forming_command::Warn{none + ": the run waits for one that does (worker --role)"});
}

// Whether to wait for a worker that is silent or late, and not certainly dead: it is dropped only
// if the reporters have copies of all segments.
bool Forming::needed(const Incarnation& who, const std::vector<Reporter>& reporters,
                     Version base) const {
  const auto* worker = group_.find(who);
  if (!worker || !worker->planned || base == 0) return false;  // holds nothing that is needed
  if (roster_.now_ms() - question_->begun_ms > config_.elastic.state_timeout_ms) return false;
  return !all_copied(reporters, config_.segments, base);
}

// Whether these reporters alone can go on without losing state, or a role.
bool Forming::suffice(const std::vector<Reporter>& reporters) const {
  const auto rule = resume_rule(reporters, group_, config_.bugs);
  if (reporters.empty() || !rule || !fenced(reporters)) return false;
  if (lacking(reporters, rule.value())) return false;
  return rule.value().fresh || all_copied(reporters, config_.segments, rule.value().base);
}

// R11: every epoch that may still run has a member among the reporters, or all its members are
// dead. A worker that has entered the last plan by its switch shows that all members of the epoch
// before had voted to go there (R15).
// So that epoch passes no step whose result the reporter lacks.
bool Forming::fenced(const std::vector<Reporter>& reporters) const {
  for (const Plan* plan : roster_.running_plans()) {
    if (plan->id == group_.plan()->id && never_begins(reporters)) continue;
    const bool reported = std::any_of(reporters.begin(), reporters.end(), [&](const Reporter& r) {
      return rank_in(*plan, r.who).has_value() || r.report.entered > plan->id;
    });
    const bool all_dead =
        std::all_of(plan->members.begin(), plan->members.end(),
                    [&](const Member& m) { return roster_.certainly_dead(m.who); });
    if (!reported && !all_dead) return false;
  }
  return true;
}

// Whether the last plan's epoch has not begun and never will: a member of the one before, which has promised not to vote
// there again, did not vote for the change (R15), for instance because its first state was not there yet.
bool Forming::never_begins(const std::vector<Reporter>& reporters) const {
  if (!group_.plan() || group_.restart() || group_.plan()->kind != PlanKind::kPrepared)
    return false;
  const Plan& last = *group_.plan();
  return std::any_of(reporters.begin(), reporters.end(), [&](const Reporter& r) {
    return r.report.entered == last.predecessor &&
           (r.report.may_have_begun != last.id || config_.bugs.r11_leaver_voted);
  });
}

// Whether the steps of the last plan's epoch were lost with all of its members. A worker that this
// epoch left behind has older state.
bool Forming::died_with_its_steps(const std::vector<Reporter>& reporters) const {
  if (!group_.plan() || group_.restart() || group_.plan()->kind != PlanKind::kPrepared)
    return false;
  const Plan& last = *group_.plan();
  return std::all_of(last.members.begin(), last.members.end(),
                     [&](const Member& m) { return roster_.certainly_dead(m.who); }) &&
         !never_begins(reporters);
}

void Forming::forget_links(const std::vector<Incarnation>& missing,
                           const std::vector<Reporter>& reporters) {
  std::vector<std::string> warnings;
  links_.tell_silent(missing, reporters, warnings);
  links_.forget();
  for (std::string& text : warnings) commands_.push_back(forming_command::Warn{std::move(text)});
}

std::optional<Links::Apart> Forming::leave_out_bad_links(std::vector<Reporter>& reporters,
                                                         const Resume& resume) {
  std::optional<Links::Apart> apart;
  std::vector<std::string> warnings;
  const std::vector<Reporter> all = reporters;
  const auto suffices = [&](const std::vector<Reporter>& others) {
    return suffice(others) && resume_rule(others, group_, config_.bugs).value().base == resume.base;
  };
  // A prepared plan was made beside an epoch that ran.
  const bool ran = group_.plan() && group_.plan()->kind == PlanKind::kPrepared;
  if (resume.fresh)
    links_.leave_out_unreached(reporters, suffices, warnings);
  else if (!links_.leave_out_joiners(reporters, warnings))
    apart = links_.leave_out_one(reporters, ran, suffices, warnings);
  if (lacking(reporters, resume)) {  // a joiner that alone has a role tries its links again
    reporters = all;
    warnings.clear();
  }
  for (std::string& text : warnings) commands_.push_back(forming_command::Warn{std::move(text)});
  return apart;
}

// ---- The plan ---------------------------------------------------------------------------------

void Forming::propose(std::vector<Reporter> reporters, const Resume& old) {
  // Leaving a worker out may have changed the point of the step loop, never the base.
  auto again = resume_rule(reporters, group_, config_.bugs);
  const Resume resume = again ? again.value() : old;
  Plan plan;
  plan.id = question_->asked;
  plan.predecessor = group_.plan() ? group_.plan()->id : EpochId{};
  plan.kind = resume.fresh ? PlanKind::kFresh : PlanKind::kForced;
  plan.base = resume.base;
  plan.begin = resume.begin;
  plan.cause = question_->cause;
  if (plan.cause.ends_with(kStopped)) plan.cause = why_stopped(roster_, reporters, plan.cause);
  for (const Reporter& r : reporters)
    if (bool(r.report.entered) &&
        std::find(plan.entered.begin(), plan.entered.end(), r.report.entered) == plan.entered.end())
      plan.entered.push_back(r.report.entered);

  const auto joins = [&](const Reporter& r) {
    return !resume.fresh && r.report.version == kNoVersion;
  };
  std::vector<Reporter> there, joining;
  for (Reporter& r : reporters) (joins(r) ? joining : there).push_back(std::move(r));
  reporters = ring_order(std::move(there), std::move(joining));

  PlacementInput in = config_.placement();
  for (const Reporter& r : reporters) {
    plan.members.push_back(roster_.member_of(r.who));
    plan.members.back().joiner = joins(r);
    auto& copies = in.copies.emplace_back(config_.segments);
    const bool builds = resume.fresh && holds(plan.members.back().role);
    for (SegmentId s = 0; s < config_.segments; ++s)
      copies[s] = builds || current_copy(r.report, s, resume.base);
  }
  in.members = plan.members;
  Placement placement = place(in);
  if (!placement.complete) return lack_state(reporters, resume.base);
  if (config_.bugs.r13_any_owner) placement.holders = target_holders(in);
  plan.holders = std::move(placement.holders);
  plan.moves = std::move(placement.moves);
  if (plan.base < config_.steps) {
    auto shares =
        deal_shares(reporters, plan.members, plan.base, config_.micro_batches, config_.bugs);
    if (!shares) return end(kExitInternal, shares.error().text());
    plan.shares = std::move(shares).value();
  }
  commands_.push_back(ProposePlan{std::move(plan)});
}

// ---- Invariants -------------------------------------------------------------------------------

void Forming::check_invariants() const {
  STARLING_CHECK(commands_.empty());
  if (!question_) return;
  STARLING_CHECK(question_->asked.term == term_);
  STARLING_CHECK(question_->asked.counter <= counter_);
  STARLING_CHECK(question_->noticed_ms <= question_->begun_ms);
  STARLING_CHECK(question_->begun_ms <= roster_.now_ms());
  if (question_->at_any_price) STARLING_CHECK(!question_->without.empty());
}

}  // namespace starling::elastic
