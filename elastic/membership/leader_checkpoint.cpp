#include <algorithm>
#include <utility>

#include "core/base/exit.h"
#include "elastic/membership/leader.h"
#include "elastic/membership/resume.h"
#include "elastic/protocol/plan.h"

// Checkpoints: who may write one (drafts.h has the rest), and the restart from it when state is gone.

namespace starling::elastic {

void Leader::warn(std::string text) {
  Observation warning;
  warning.what = std::move(text);
  emit(std::move(warning));
}

// ---- Writing ----------------------------------------------------------------------------------

void Leader::said(const Incarnation& from, const std::string& name, const ShardWritten& m) {
  if (roster_.member_now(from)) take(drafts_.take(name, m, roster_.standard()));
}

void Leader::take(DraftCommands commands) {
  for (DraftCommand& command : commands)
    std::visit([this](auto& c) { carry_out(std::move(c)); }, command);
}

// Members vote for it, so that all write the same version; what is lost of it with an epoch is
// asked for again.
void Leader::on_event(const leader_event::AskCheckpoint&) {
  if (drafts_.ask()) ask_checkpoint();
}

void Leader::ask_checkpoint() {
  const auto& above = drafts_.asked_above();
  if (!above || !group_.plan()) return;
  for (const Member& m : group_.plan()->members) send(m.who, CheckpointAsked{*above});
}

void Leader::on_event(const leader_event::Stored& e) {
  take(drafts_.stored(e.version, e.error));
}

void Leader::applied(const Published& e) {
  take(drafts_.published(e.checkpoint.version));
}

// ---- Restarting -------------------------------------------------------------------------------

void Leader::said(const Incarnation& from, const std::string& name, const Unloadable& m) {
  const bool loading = roster_.member_now(from) && group_.start() == m.version && m.version != 0;
  if (!loading || damage_proposed_ || !group_.can_start()) return;
  damage_proposed_ = true;
  emit(leader_command::Propose{Damaged{m.version, name + ": " + m.reason}});
}

void Leader::applied(const Damaged& e) {
  warn("checkpoint of step " + std::to_string(e.version) + " cannot be used: " + e.reason);
}

// With the state gone for good, and nobody who could still run an epoch with it (R11): all of the
// last plan begin anew, whatever they have.
bool Leader::restart_from_checkpoint(const std::vector<Reporter>& reporters,
                                     const std::string& why) {
  if (group_.checkpoints().empty() || !group_.plan()) return false;
  if (!fenced(reporters) && !config_.bugs.r11_no_fence) return false;
  Restarted restarted;
  restarted.lost = group_.plan()->id;
  restarted.version = group_.checkpoints().back().version;
  restarted.cause = why;
  plan_proposed_ = true;
  emit(leader_command::Propose{std::move(restarted)});
  return true;
}

void Leader::applied(const Restarted&) {
  if (epoch_) announce_epoch(-1);
  forming_.reset();
  drafts_.forget();
  bad_links_.clear();
  noticed_ms_ = 0;
  restarted_ms_ = now_ms_;
  // Those who live start a new life as soon as they are told, and come back without state.
  for (const Member& m : group_.plan()->members)
    if (!roster_.certainly_dead(m.who)) tell_left_out(m.who);
}

// As many as were lost, or those who have come when the first has waited long enough.
bool Leader::newcomers_are_there() const {
  if (now_ms_ - restarted_ms_ > config_.start_timeout_ms) return true;
  const auto newcomers = roster_.waiting_joiners();
  if (newcomers.size() >= group_.plan()->members.size()) return true;
  return std::any_of(newcomers.begin(), newcomers.end(), [&](const Incarnation& who) {
    const Contact* c = roster_.find(who);
    const std::uint64_t since = c ? c->welcomed_ms : began_ms_;
    return now_ms_ - std::max(since, restarted_ms_) >= config_.restart_window_ms;
  });
}

void Leader::no_newcomer() {
  if (now_ms_ - restarted_ms_ <= config_.start_timeout_ms) return;
  end_job(kExitStateLost, "state lost: " + group_.restart()->cause + "; no worker came within " +
                              std::to_string(config_.start_timeout_ms) + " ms to go on; " +
                              newest_checkpoint());
}

std::string Leader::newest_checkpoint() const {
  if (group_.checkpoints().empty()) return "there is no checkpoint to start from";
  return "the newest checkpoint is of step " + std::to_string(group_.checkpoints().back().version) +
         " in " + config_.checkpoint_dir;
}

}  // namespace starling::elastic
