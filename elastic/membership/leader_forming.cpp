#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/exit.h"
#include "elastic/membership/leader.h"
#include "elastic/membership/placement.h"
#include "elastic/membership/resume.h"
#include "elastic/protocol/plan.h"

// When an epoch is over: whom to wait for, and the forced plan that follows.

namespace starling::elastic {

void Leader::review() {
  if (plan_proposed_ || end_proposed_ || damage_proposed_) return;
  if (!forming_) {
    if (group_.restart()) {
      if (newcomers_are_there()) form("restart from step " + std::to_string(group_.start()));
    } else if (!group_.plan()) {
      if (start_is_due()) form("start");
    } else if (std::string why = why_broken(); !why.empty()) {
      form(std::move(why));
    }
  }
  if (forming_)
    try_form();
  else if (group_.plan() && !group_.restart()) {
    try_end();
    if (!end_proposed_) try_prepare();
  }
}

bool Leader::start_is_due() const {
  return roster_.waiting_joiners().size() >= config_.wanted_workers ||
         now_ms_ - began_ms_ > config_.start_timeout_ms;
}

std::string Leader::why_broken() {
  for (const Plan* plan : roster_.running_plans()) {
    for (const Member& member : plan->members) {
      if (roster_.certainly_dead(member.who)) return "lost " + member.name;
      const Contact* c = roster_.find(member.who);
      if (c && c->report && stopped_since(*c->report)) return member.name + " stopped";
      if (roster_.silent(member.who))
        return member.name + " not heard for " + std::to_string(roster_.tolerance()) + " ms";
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
    forming.without = forming_->without;
    forming.at_any_price = forming_->at_any_price;
  }
  // Fresh in this term, and above what anybody who stopped by itself may have promised (R9).
  if (group_.plan() && group_.plan()->id.term == term_)
    counter_ = std::max(counter_, group_.plan()->id.counter);
  for (const Incarnation& who : roster_.candidates())
    if (const auto& report = roster_.meet(who).report; report && report->promise.term == term_)
      counter_ = std::max(counter_, report->promise.counter - 1);
  forming.asked = EpochId{term_, ++counter_};
  forming_ = std::move(forming);
  ask_for_reports();
}

void Leader::ask_for_reports() {
  for (const Incarnation& who : roster_.candidates()) {
    const auto& report = roster_.meet(who).report;
    if (!report || report->promise < forming_->asked) send(who, Freeze{forming_->asked});
  }
}

void Leader::try_form() {
  std::vector<Reporter> reporters, stuck;
  std::vector<Incarnation> missing, stuck_missing;
  bool lost = false;
  for (const Incarnation& who : roster_.candidates()) {
    if (roster_.certainly_dead(who)) {
      lost = true;
      continue;
    }
    const Contact& c = roster_.meet(who);
    if (c.report && c.report->promise > forming_->asked && c.report->promise.term == term_)
      return form(forming_->cause);
    const bool counts = c.report && (c.report->promise == forming_->asked ||  // R11
                                     config_.bugs.r11_any_report);
    const bool holds_up = forming_->without.count(who.nonce) != 0;
    if (counts)
      (holds_up ? stuck : reporters).push_back({who, *c.report});
    else if (holds_up)
      stuck_missing.push_back(who);
    else if (in_time(who))
      return;
    else
      missing.push_back(who);
  }
  // Those who hold up all others are left out, unless that would lose state.
  if (!forming_->without.empty()) lost = true;
  if (!forming_->without.empty() && !forming_->at_any_price && !suffice(reporters)) {
    std::move(stuck.begin(), stuck.end(), std::back_inserter(reporters));
    missing.insert(missing.end(), stuck_missing.begin(), stuck_missing.end());
  }
  if (config_.bugs.r11_any_member)
    for (const auto& [nonce, c] : roster_.contacts()) {
      const bool known =
          std::any_of(reporters.begin(), reporters.end(),
                      [&, same = nonce](const Reporter& r) { return r.who.nonce == same; });
      if (!known && c.report && !c.dead) reporters.push_back({Incarnation{0, nonce}, *c.report});
    }

  auto resume = resume_rule(reporters, group_, config_.bugs);
  const bool died = died_with_its_steps(reporters) && !config_.bugs.r11_revive_leaver;
  const bool state_lost = died || (!resume && resume.error().code() == Code::kStateLost);
  if (!resume && !state_lost) return end_job(kExitInternal, resume.error().text());
  const Version base = resume ? resume.value().base : 0;
  for (const Incarnation& who : missing)
    if (needed(who, reporters, base)) return;

  const bool first = !group_.plan() || group_.restart();
  const bool may_form = first || fenced(reporters) || config_.bugs.r11_no_fence;
  std::erase_if(reporters, [&](const Reporter& r) { return !goes_on(r.report, base); });
  if (group_.restart()) {
    if (reporters.empty()) return no_newcomer();
  } else if (first && reporters.size() < config_.wanted_workers) {
    if (now_ms_ - began_ms_ <= config_.start_timeout_ms) return;
    return end_job(kExitAlone, std::to_string(reporters.size()) + " of " +
                                   std::to_string(config_.wanted_workers) +
                                   " workers came within " +
                                   std::to_string(config_.start_timeout_ms) + " ms");
  }
  const bool patience =
      !forming_->at_any_price && now_ms_ - forming_->begun_ms <= config_.state_timeout_ms;
  if (reporters.empty() || state_lost) {
    if (!missing.empty() && patience) return;
    return lose_state(reporters, died ? kNoVersion : base);
  }
  if (!may_form) {
    if (!patience)
      end_job(kExitStateLost, "state lost: epoch " + to_string(group_.plan()->id) +
                                  " may still run, but none of its members has reported for " +
                                  std::to_string(config_.state_timeout_ms) + " ms; " +
                                  newest_checkpoint());
    return;
  }
  // Who loses a member closes its other connections as well, and is named by those at their ends.
  if (lost || !missing.empty())
    bad_links_.clear();
  else if (!resume.value().fresh && !leave_out_broken_joiners(reporters))
    leave_out_bad_link(reporters, base);
  propose_forced(std::move(reporters), resume.value());
}

// Whether a report may still come as soon as can be expected: its sender is heard, and not later
// than the others are.
bool Leader::in_time(const Incarnation& who) {
  const std::uint64_t waited = now_ms_ - forming_->begun_ms;
  return !roster_.silent(who) &&
         (waited <= config_.report_deadline_ms || waited <= roster_.tolerance());
}

// One that is silent or late, and not certainly dead, is dropped only if the others have what it
// has.
bool Leader::needed(const Incarnation& who, const std::vector<Reporter>& reporters,
                    Version base) const {
  const auto* worker = group_.find(who);
  if (!worker || !worker->planned || base == 0) return false;  // holds nothing that is needed
  if (now_ms_ - forming_->begun_ms > config_.state_timeout_ms) return false;
  for (SegmentId s = 0; s < config_.segments; ++s)
    if (std::none_of(reporters.begin(), reporters.end(),
                     [&](const Reporter& r) { return current_copy(r.report, s, base); }))
      return true;
  return false;
}

// Whether these alone can go on without losing anything.
bool Leader::suffice(const std::vector<Reporter>& reporters) const {
  const auto rule = resume_rule(reporters, group_, config_.bugs);
  if (reporters.empty() || !rule || !fenced(reporters)) return false;
  if (rule.value().fresh) return true;
  for (SegmentId s = 0; s < config_.segments; ++s)
    if (std::none_of(reporters.begin(), reporters.end(), [&](const Reporter& r) {
          return current_copy(r.report, s, rule.value().base);
        }))
      return false;
  return true;
}

// R11: every epoch that may still run has a member among the reporters, or all its members are
// dead. Who has entered the last plan by its switch shows that everybody in the epoch before it had
// voted to go there (R15), so that one passes nothing more that the reporter does not have.
bool Leader::fenced(const std::vector<Reporter>& reporters) const {
  for (const Plan* plan : roster_.running_plans()) {
    const bool reported = std::any_of(reporters.begin(), reporters.end(), [&](const Reporter& r) {
      return rank_in(*plan, r.who) != kNoRank || r.report.entered > plan->id;
    });
    const bool all_dead =
        std::all_of(plan->members.begin(), plan->members.end(),
                    [&](const Member& m) { return roster_.certainly_dead(m.who); });
    if (!reported && !all_dead) return false;
  }
  return true;
}

// A joiner holds nothing, so the first broken link with one is enough: it would hold up everybody
// again. Its own word does not count, as who stops closes the links with it too. Lives to which a
// connection never stood are counted. Returns whether there was one to leave out.
bool Leader::leave_out_broken_joiners(std::vector<Reporter>& reporters) {
  std::set<std::uint64_t> broken, unreached;  // nonces
  for (const Reporter& r : reporters)
    for (const Incarnation& who : r.report.broken) {
      broken.insert(who.nonce);
      if (r.report.unreached) unreached.insert(who.nonce);
    }
  const auto goes = [&](const Reporter& r) {
    return r.report.version == kNoVersion && broken.count(r.who.nonce);
  };
  for (const Reporter& r : reporters) {
    if (!goes(r) || !unreached.count(r.who.nonce)) continue;
    const Member joiner = member_of(r.who);
    if (unreached_[joiner.name].insert(r.who.nonce).second)
      warn(joiner.name + " is left out: others cannot connect to it at " + joiner.host + ":" +
           std::to_string(joiner.port));
  }
  return std::erase_if(reporters, goes) > 0;
}

// Whether the steps of the last plan's epoch went with all of its members. Who was left behind by
// it has older state; only if one of them did not vote for the change has that epoch never begun.
bool Leader::died_with_its_steps(const std::vector<Reporter>& reporters) const {
  if (!group_.plan() || group_.restart() || group_.plan()->kind != PlanKind::kPrepared)
    return false;
  const Plan& last = *group_.plan();
  return std::all_of(last.members.begin(), last.members.end(),
                     [&](const Member& m) { return roster_.certainly_dead(m.who); }) &&
         std::all_of(reporters.begin(), reporters.end(), [&](const Reporter& r) {
           return r.report.version == kNoVersion || r.report.may_have_begun == last.id;
         });
}

// If two successive plans break on the same pair and lose nobody, the next leaves one of the two
// out: the one with more broken links, else the higher rank.
void Leader::leave_out_bad_link(std::vector<Reporter>& reporters, Version base) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> links;
  std::map<std::uint64_t, int> count;
  const auto place = [&](std::uint64_t nonce) {
    return std::find_if(reporters.begin(), reporters.end(),
                        [&, same = nonce](const Reporter& r) { return r.who.nonce == same; });
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
    if (!suffice(others)) continue;
    if (resume_rule(others, group_, config_.bugs).value().base != base) continue;
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

  PlacementInput in;
  in.segments = config_.segments;
  in.bucket_segments = config_.bucket_segments;
  in.replicas = config_.replicas;
  in.budget = config_.move_budget;
  for (const Reporter& r : reporters) {
    plan.members.push_back(member_of(r.who));
    plan.members.back().joiner = joins(r);
    auto& copies = in.copies.emplace_back(config_.segments);
    for (SegmentId s = 0; s < config_.segments; ++s)
      copies[s] = resume.fresh || current_copy(r.report, s, resume.base);
  }
  in.members = plan.members;
  Placement placement = place(in);
  if (!placement.complete) {
    const bool patience =
        !forming_->at_any_price && now_ms_ - forming_->begun_ms <= config_.state_timeout_ms;
    const bool somebody_may_come = std::any_of(
        group_.plan()->members.begin(), group_.plan()->members.end(), [&](const Member& m) {
          return !roster_.certainly_dead(m.who) && rank_in(plan, m.who) == kNoRank;
        });
    if (!(patience && somebody_may_come)) lose_state(reporters, resume.base);
    return;
  }
  if (config_.bugs.r13_any_owner) placement.holders = target_holders(in);
  plan.holders = std::move(placement.holders);
  plan.moves = std::move(placement.moves);
  if (plan.base < config_.steps) {
    auto shares = deal_shares(reporters, plan.base, config_.micro_batches, config_.bugs);
    if (!shares) return end_job(kExitInternal, shares.error().text());
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
  const std::string why = "no living worker has a current copy of " + names;
  if (restart_from_checkpoint(reporters, why)) return;
  end_job(kExitStateLost, "state lost: " + why + "; " + newest_checkpoint());
}

void Leader::end_job(std::uint8_t code, std::string reason) {
  end_proposed_ = true;
  JobEnded end;
  end.exit_code = code;
  end.reason = std::move(reason);
  emit(leader_command::Propose{std::move(end)});
}

}  // namespace starling::elastic
