#include <algorithm>
#include <string>
#include <utility>

#include "core/base/exit.h"
#include "core/observe/event.h"
#include "elastic/membership/leader.h"

// What admins ask of a run (docs/steer.md). The leader remembers nothing of it: an admin asks again with the mark of the
// last answer, so a leader that comes later answers as the one before would have.

namespace starling::elastic {

void Leader::on_event(const leader_event::AdminArrived& e) {
  review_due_ = true;
  AdminAnswered answer{e.asked.action, AdminState::kUnderWay, e.asked.mark, {}};
  if (proposals_.end()) {
    answer.text = "the run ends";
  } else if (e.asked.action == AdminAction::kCheckpoint) {
    ask_checkpoint(e.name, answer);
  } else if (e.asked.action == AdminAction::kStop) {
    tell(event::AdminActed{e.name, to_string(e.asked.action), {}});
    end_job(kExitTerminated, "stopped by " + e.name);
    answer.text = "the run ends";
  } else {
    take_out(e.name, e.asked, answer);
  }
  send(e.from, std::move(answer));
}

// The mark is the version from which on a checkpoint will do, and 1 at least.
void Leader::ask_checkpoint(const std::string& by, AdminAnswered& answer) {
  const auto refuse = [&](std::string why) {
    answer.state = AdminState::kRefused;
    answer.text = std::move(why);
  };
  if (config_.checkpoint_every == 0)
    return refuse("the job writes no checkpoints: it has no [checkpoint]");
  if (!group_.plan()) return refuse("no step has been done yet");
  const bool first = answer.mark == 0;
  const Version now = last_record_ ? last_record_->version + 1 : group_.start();
  if (first) answer.mark = std::max<Version>(now, 1);
  const auto& complete = group_.checkpoints();
  if (!complete.empty() && complete.back().version >= answer.mark) {
    answer.state = AdminState::kDone;
    answer.text =
        "the checkpoint of step " + std::to_string(complete.back().version) + " is complete";
    return;
  }
  if (first) tell(event::AdminActed{by, to_string(AdminAction::kCheckpoint), {}});
  if (drafts_.ask()) ask_checkpoint();
}

// The mark is the life that is to go.
void Leader::take_out(const std::string& by, const AdminAsked& asked, AdminAnswered& answer) {
  const auto refuse = [&](std::string why) {
    answer.state = AdminState::kRefused;
    answer.text = std::move(why);
  };
  const auto done = [&](const char* what) {
    answer.state = AdminState::kDone;
    answer.text = asked.worker + what;
  };
  const auto& plan = group_.plan();
  const bool fresh = asked.mark == 0;
  // Of two lives of one name the one in the last plan is meant.
  const auto of_name = [&](const Member& m) { return m.name == asked.worker; };
  const auto of_mark = [&](const Member& m) { return m.who.nonce == Nonce(asked.mark); };
  const Member* member = nullptr;
  std::string names;
  for (const Member* m : roster_.running_members()) {
    if (!member && (fresh ? of_name(*m) : of_mark(*m))) member = m;
    names += (names.empty() ? "" : ", ") + m->name;
  }
  const Group::Worker* worker = member ? group_.find(member->who) : nullptr;
  if (!worker || !plan) {
    const auto* gone = group_.find({0, Nonce(asked.mark)});
    if (!fresh) return done(gone && gone->dead ? " is dead" : " has left");
    return refuse("no worker named " + asked.worker +
                  " is in the epoch that runs; its members are " +
                  (names.empty() ? "none" : names));
  }
  answer.mark = member->who.nonce;
  if (roster_.certainly_dead(member->who)) return done(" is dead");
  const auto stays = [&](const Member& m) {
    const auto* other = group_.find(m.who);
    return other && m.who.nonce != member->who.nonce && !other->leaving && !other->dead;
  };
  if (!worker->leaving && !std::any_of(plan->members.begin(), plan->members.end(), stays))
    return refuse("no worker would stay to take over what " + asked.worker +
                  " holds; let another join first, or stop the run");
  const bool evict = asked.action == AdminAction::kEvict;
  if (evict && !others_have_all_of(member->who))
    return refuse("parts of the state are with " + asked.worker +
                  " alone; drain it, or try again when the others have copies");
  const bool announces = !worker->leaving && !proposals_.leaving(member->who);
  if (announces || (evict && fresh))
    tell(event::AdminActed{by, to_string(asked.action), asked.worker});
  if (announces) {
    propose(LeaveAnnounced{member->who});
  } else if (evict && worker->leaving && roster_.member_now(member->who) && !forming_.active() &&
             !proposals_.deciding()) {
    take(forming_.leave_out({member->who}, now_ms_, asked.worker + " evicted by " + by,
                            /*at_any_price=*/false));
  }
}

}  // namespace starling::elastic
