#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "core/base/exit.h"
#include "core/job/words.h"
#include "core/observe/event.h"
#include "core/wire/limits.h"
#include "elastic/membership/leader.h"
#include "elastic/membership/placement.h"

// What admins ask of a run (docs/steer.md). An admin asks again with the mark of the last answer, so a leader that comes
// later answers as the one before would have. The leader remembers evictions alone, and a rate until a plan has it.

namespace starling::elastic {

using job_words::number_text;

void Leader::on_event(const leader_event::AdminArrived& e) {
  review_due_ = true;
  AdminAnswered answer{e.asked.action, AdminState::kUnderWay, e.asked.mark, {}};
  if (proposals_.end()) {
    answer.text = "the run ends";
  } else if (e.asked.action == AdminAction::kCheckpoint) {
    ask_checkpoint(e.name, answer);
  } else if (e.asked.action == AdminAction::kRate) {
    ask_rate(e.name, e.asked, answer);
  } else if (e.asked.action == AdminAction::kStop) {
    tell(event::AdminActed{e.name, to_string(e.asked.action), {}});
    end_job(kExitTerminated, "stopped by " + e.name);
    answer.text = "the run ends";
  } else {
    take_out(e.name, e.asked, answer);
  }
  send(e.from, std::move(answer));
}

// The mark is the version from which on a checkpoint will do.
void Leader::ask_checkpoint(const std::string& by, AdminAnswered& answer) {
  const auto refuse = [&](std::string why) {
    answer.state = AdminState::kRefused;
    answer.text = std::move(why);
  };
  if (config_.checkpoint.every == 0)
    return refuse("the job writes no checkpoints: it has no [checkpoint]");
  if (!group_.plan()) return refuse("no step has been done yet");
  const bool first = answer.mark == 0;
  const Version now = newest_version();
  if (now == 0) return;  // a leader that was elected just now knows none yet: it is asked again
  if (first) answer.mark = now;
  const auto& complete = group_.checkpoints();
  if (!complete.empty() && complete.back().version >= answer.mark &&
      complete.back().rates == group_.rates()) {
    answer.state = AdminState::kDone;
    answer.text =
        "the checkpoint of step " + std::to_string(complete.back().version) + " is complete";
    return;
  }
  if (const auto& failed = drafts_.given_up(); !first && failed && failed->version >= answer.mark) {
    drafts_.withdraw_ask();  // it would be tried at each step, as nobody says that it is enough
    return refuse("the checkpoint of step " + std::to_string(failed->version) +
                  " is given up: " + failed->why);
  }
  if (!drafts_.ask()) return;  // one is asked for already
  if (first) tell(event::AdminActed{by, to_string(AdminAction::kCheckpoint), {}});
  ask_checkpoint();
}

// ---- Another peak rate ------------------------------------------------------------------------

// The mark is how many changes there are with this one.
void Leader::ask_rate(const std::string& by, const AdminAsked& asked, AdminAnswered& answer) {
  const auto refuse = [&](std::string why) {
    answer.state = AdminState::kRefused;
    answer.text = std::move(why);
  };
  const auto& rates = group_.rates();
  // Another admin's change may have taken the place of this one, where the leader that was asked is gone.
  const bool first = asked.mark == 0 || (rates.size() >= asked.mark &&
                                         rates[asked.mark - 1].peak_rate != asked.peak_rate);
  const bool same = first && !rates.empty() && rates.back().peak_rate == asked.peak_rate;
  if (same || (!first && rates.size() >= asked.mark)) {
    const RateChange& change = first ? rates.back() : rates[asked.mark - 1];
    answer.state = AdminState::kDone;
    answer.text = "the peak rate is " + number_text(change.peak_rate) + " after step " +
                  std::to_string(change.from);
    if (change.from >= config_.steps)
      answer.text = "no step is left for the peak rate " + number_text(change.peak_rate);
    return;
  }
  if (!group_.plan()) return refuse("no step of this run has been done yet");
  if (newest_version() >= config_.steps) return refuse("no step is left for another rate");
  if (rates.size() >= limits::kRateChanges)
    return refuse("the rate of this run was changed " + std::to_string(rates.size()) +
                  " times, the most that a run may have");
  if (asked_rate_ && asked_rate_->peak_rate != asked.peak_rate) return;  // one after the other
  answer.mark = rates.size() + 1;
  if (asked_rate_) return;
  asked_rate_ = {asked.peak_rate, by};
  if (first) tell(event::AdminActed{by, to_string(asked.action), {}, asked.peak_rate});
}

// A freeze ends the steps of the last epoch, so the log can say which step is the first of the new rate.
void Leader::form_for_rate() {
  if (!asked_rate_ || forming_.active() || !group_.plan() || group_.restart()) return;
  if (config_.bugs.r19_prepared_rate) return;
  take(forming_.form_anew(asked_rate_->by + " changes the rate"));
}

// R19. Steps below reached() were told with the rate that they had, and are done again with it.
void Leader::add_rate(Plan& plan) const {
  plan.rates = group_.rates();
  const bool prepared = plan.kind == PlanKind::kPrepared;
  if (!asked_rate_ || !group_.plan() || (prepared && !config_.bugs.r19_prepared_rate)) return;
  Version from = prepared ? newest_version() : plan.base;
  if (!config_.bugs.r19_rate_of_told) from = std::max(from, group_.reached());
  if (!plan.rates.empty()) from = std::max(from, plan.rates.back().from);
  plan.rates.push_back({from, asked_rate_->peak_rate});
  plan.cause +=
      "; peak rate " + number_text(asked_rate_->peak_rate) + " after step " + std::to_string(from);
}

void Leader::rate_changed() {
  asked_rate_.reset();
  // A run that goes on from a checkpoint knows the changes that are in it.
  if (config_.checkpoint.every != 0 && drafts_.ask()) ask_checkpoint();
}

// The newest version that a member is known to have; 0: none is known in this term.
Version Leader::newest_version() const {
  Version newest = last_record_ ? last_record_->version + 1 : Version{0};
  for (const Member* member : roster_.running_members()) {
    const Contact* contact = roster_.find(member->who);
    if (contact && contact->version != kNoVersion) newest = std::max(newest, contact->version);
  }
  return newest;
}

// The mark is the life that is to go.
void Leader::take_out(const std::string& by, const AdminAsked& asked, AdminAnswered& answer) {
  const auto refuse = [&](std::string why) {
    answer.state = AdminState::kRefused;
    answer.text = std::move(why);
  };
  const auto& plan = group_.plan();
  const bool evict = asked.action == AdminAction::kEvict;
  const bool fresh = asked.mark == 0;
  // Of two lives of one name the one in the last plan is meant.
  const Member* member = nullptr;
  std::set<std::string> names;  // sorted: members are in the order in which they joined
  for (const Member* m : roster_.running_members()) {
    const bool meant = m->name == asked.worker && (fresh || m->who.nonce == Nonce(asked.mark));
    if (meant && !member) member = m;
    names.insert(m->name);
  }
  const Group::Worker* worker = member ? group_.find(member->who) : nullptr;
  const Incarnation life = member ? member->who : Incarnation{0, Nonce(asked.mark)};
  const Group::Worker* known = group_.find(life);
  if (roster_.certainly_dead(life) || (known && known->dead)) {
    if (!evict) return refuse(asked.worker + " died before it had left; a new life of it may join");
    if (worker) return;  // until an epoch without it is there
  }
  if (!worker || !plan) {
    if (!fresh) {
      answer.state = AdminState::kDone;
      answer.text = asked.worker + (evict ? " is out" : " has left");
      return;
    }
    if (names.empty()) return refuse("no epoch runs, and no worker is in one");
    std::string listed;
    for (const std::string& name : names) listed += (listed.empty() ? "" : ", ") + name;
    return refuse("no worker named \"" + asked.worker +
                  "\" is in the epoch that runs; its members are " + listed);
  }
  const auto stays = [&](const Member& m) {
    const auto* other = group_.find(m.who);
    return other && m.who.nonce != life.nonce && !other->leaving && !other->dead &&
           !proposals_.leaving(m.who) && !proposals_.losing(m.who);
  };
  const bool goes = worker->leaving || proposals_.leaving(life);
  std::vector<Member> others;
  std::ranges::copy_if(plan->members, std::back_inserter(others), stays);
  if (const auto role = role_lacking(others); role && !goes) {
    const bool computing = role == WorkerRole::kCompute && !others.empty();
    return refuse((!computing ? "no worker would stay to take over what " + asked.worker + " holds"
                   : computes(member->role) ? "no worker would stay to compute"
                                            : "no worker computes, so no step hands over what " +
                                                  asked.worker + " holds") +
                  "; let another join first, or stop the run");
  }
  if (evict && fresh && !others_have_all_of(life))
    return refuse("parts of the state are with " + asked.worker +
                  " alone; drain it, or try again when the others have copies");
  answer.mark = life.nonce;
  const auto evicted = [&](const Eviction& e) { return e.who.nonce == life.nonce; };
  const bool begins = evict && std::none_of(evictions_.begin(), evictions_.end(), evicted);
  if (begins) evictions_.push_back({life, asked.worker, by});
  if ((begins && fresh) || !goes)
    tell(event::AdminActed{by, to_string(asked.action), asked.worker});
  if (!goes) propose(LeaveAnnounced{life});
}

// Leaves out the workers that an admin evicts, once their leave is in the log: whether or not the admin asks on.
void Leader::leave_out_evicted() {
  std::erase_if(evictions_, [&](const Eviction& e) {
    const auto* worker = group_.find(e.who);
    if (!worker || worker->dead || !roster_.member_now(e.who)) return true;
    if (!e.tried || forming_.active()) return false;
    warn(e.worker +
         " is not evicted, as parts of the state are with it alone; it leaves when others have "
         "copies");
    return true;
  });
  for (Eviction& e : evictions_) {
    if (e.tried || !group_.find(e.who)->leaving) continue;
    e.tried = true;
    if (forming_.active())
      forming_.leave_out_too(e.who);
    else
      take(forming_.leave_out({e.who}, now_ms_, e.worker + " evicted by " + e.by,
                              /*at_any_price=*/false));
  }
}

}  // namespace starling::elastic
