#include <utility>

#include "core/base/exit.h"
#include "elastic/membership/leader.h"

// The leader asks for checkpoints (drafts.h has the rest), and restarts from one if state is gone.

namespace starling::elastic {

void Leader::warn(std::string text) {
  tell(event::Warning{std::move(text)});
}

// ---- Writing ----------------------------------------------------------------------------------

void Leader::said(const Incarnation& from, const std::string& name, const ShardWritten& m) {
  if (roster_.member_now(from)) take(drafts_.take(name, m, origin()));
}

Drafts::Origin Leader::origin() {
  return {roster_.standard(), data_of_job().digest, doubted_from()};
}

// Members vote for a requested checkpoint, so all write the same version. The leader asks again for
// what an epoch has lost of it.
void Leader::on_event(const leader_event::AskCheckpoint&) {
  if (drafts_.ask()) ask_checkpoint();
}

// When all members leave, the training goes with them: each next checkpoint is asked for when the
// one before is complete and a lease is over, until a worker joins or the last notice ends.
void Leader::keep_what_leaves() {
  const auto& plan = group_.plan();
  const bool too_soon = kept_ms_ != 0 && now_ms_ - kept_ms_ < config_.elastic.lease_ms;
  if (!plan || proposals_.end() || too_soon) return;
  if (!everybody_leaves(*plan, group_) || !drafts_.ask()) return;
  kept_ms_ = now_ms_;
  ask_checkpoint();
}

// Time counts from the first step that this leader hears of: a new one asks a little late.
void Leader::keep_by_time() {
  const bool running = group_.plan() && !group_.restart() && !proposals_.end();
  if (config_.checkpoint.every_seconds == 0 || !running || !last_record_) return;
  if (checkpoint_ms_ == 0) checkpoint_ms_ = now_ms_;
  if (now_ms_ - checkpoint_ms_ < 1000 * config_.checkpoint.every_seconds) return;
  checkpoint_ms_ = now_ms_;
  if (drafts_.ask()) ask_checkpoint();
}

void Leader::ask_checkpoint() {
  const auto& above = drafts_.asked_above();
  if (!above || !group_.plan() || drafts_.stores_asked()) return;
  for (const Member& m : group_.plan()->members) send(m.who, CheckpointAsked{*above});
}

// A worker that dies after this was told to: the log has the end, and nothing counts after it.
void Leader::on_event(const leader_event::EndRun& e) {
  if (group_.end() || proposals_.end()) return;
  end_job(static_cast<std::uint8_t>(kExitSignal + e.signal), e.reason);
}

void Leader::on_event(const leader_event::Stored& e) {
  take(drafts_.stored(e.version, e.error));
}

void Leader::applied(const Published& e) {
  checkpoint_ms_ = now_ms_;
  take(drafts_.published(e.checkpoint.version));
  doubt_checkpoints();  // this one may have been on its way when the doubt came
}

// ---- Restarting -------------------------------------------------------------------------------

void Leader::said(const Incarnation& from, const std::string& name, const Unloadable& m) {
  const bool loading = roster_.member_now(from) && group_.start() == m.version && m.version != 0;
  if (!loading || proposals_.damage() || !group_.can_start()) return;
  propose(Damaged{m.version, name + ": " + m.reason});
}

void Leader::applied(const Damaged& e) {
  warn("checkpoint of step " + std::to_string(e.version) + " cannot be used: " + e.reason);
}

// Members' versions differ by one at most, so one that died may have passed a step more than is known.
void Leader::carry_out(forming_command::ProposeRestart c) {
  c.restarted.reached = std::max(told_, newest_version()) + 1;
  propose(std::move(c.restarted));
}

void Leader::applied(const Restarted& e) {
  roster_.restarted(e.version);
  if (epoch_) announce_epoch();
  forming_.restarts();
  drafts_.forget();
  // Living members start a new life as soon as they are told, and come back without state.
  for (const Member& m : group_.plan()->members)
    if (!roster_.certainly_dead(m.who)) tell_left_out(m.who);
}

std::string Leader::newest_checkpoint() const {
  return forming_.newest_checkpoint(tainted_from_.value_or(kNoVersion));
}

}  // namespace starling::elastic
