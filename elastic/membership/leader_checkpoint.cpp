#include <algorithm>
#include <utility>

#include "core/base/exit.h"
#include "elastic/membership/leader.h"
#include "elastic/membership/resume.h"
#include "elastic/protocol/plan.h"

// Checkpoints: from shards to a complete one, and the restart from it when state is gone.

namespace starling::elastic {
namespace {

// Beside those whose manifest is being written: one that was skipped, one whose last words are
// under way, and the next. A member cannot begin a version while another's part of one before it is
// not written, so there are never many.
constexpr std::size_t kDraftsMax = 3;
constexpr std::size_t kDigestsMax = 4;  // of versions whose shards may come late

std::string step(Version version) {
  return "checkpoint of step " + std::to_string(version);
}

}  // namespace

void Leader::warn(std::string text) {
  Observation warning;
  warning.what = std::move(text);
  emit(std::move(warning));
}

// ---- Writing ----------------------------------------------------------------------------------

bool Leader::member_now(const Incarnation& who) const {
  if (!group_.plan() || group_.restart()) return false;
  return ranks_.count(who.nonce) != 0 || (lacking_ != 0 && ranks_before_.count(who.nonce) != 0);
}

// Parts of one version are the same bits whoever writes them and in whichever epoch.
void Leader::said(const Incarnation& from, const std::string& name, const ShardWritten& m) {
  const Version every = config_.checkpoint_every;
  const bool asked = asked_above_ && m.version > *asked_above_;
  if (every == 0 || m.version == 0 || m.version > config_.steps) return;
  if (m.version % every != 0 && !asked) return;
  if (!member_now(from)) return;
  if (!group_.checkpoints().empty() && m.version <= group_.checkpoints().back().version) return;
  if (drafts_.size() >= kDraftsMax && m.version < drafts_.begin()->first) return;
  const auto [it, fresh] = drafts_.try_emplace(m.version);
  Draft& draft = it->second;
  if (fresh) {
    draft.checkpoint.version = m.version;
    draft.segments.resize(config_.segments);
    draft.record = m.record;
    const auto open = [](const auto& d) { return !d.second.storing; };
    const auto oldest = std::find_if(drafts_.begin(), it, open);
    if (drafts_.size() > kDraftsMax && oldest != it) {
      if (!oldest->second.given_up) give_up(oldest->first, "some parts of it are missing");
      drafts_.erase(oldest);
    }
  }
  if (draft.given_up || draft.storing) return;
  if (!m.error.empty()) return give_up(m.version, name + ": " + m.error);
  Shard shard{m.shard.file, m.shard.bytes, {}};
  for (const SegmentDigest& s : m.shard.segments) {
    if (s.segment >= config_.segments || draft.segments[s.segment]) continue;
    draft.segments[s.segment] = true;
    draft.checkpoint.digest = draft.checkpoint.digest + s.digest;
    shard.segments.push_back(s);
  }
  if (!shard.segments.empty()) draft.shards.push_back(std::move(shard));
  store_if_complete(m.version);
}

void Leader::note_digest(const StepRecord& record) {
  const Version every = config_.checkpoint_every, due = config_.digest_every;
  const bool asked = asked_above_ && record.version > *asked_above_;
  if (every == 0 || due == 0 || record.version % due != 0) return;
  if (record.version % every != 0 && !asked) return;
  digests_[record.version] = record.digest;
  if (digests_.size() > kDigestsMax) digests_.erase(digests_.begin());
  store_if_complete(record.version);
}

// What was written is what was voted for, where votes carry a digest.
void Leader::store_if_complete(Version version) {
  const auto it = drafts_.find(version);
  if (it == drafts_.end() || it->second.storing || it->second.given_up) return;
  Draft& draft = it->second;
  if (!std::all_of(draft.segments.begin(), draft.segments.end(), [](bool there) { return there; }))
    return;
  if (config_.digest_every != 0 && version % config_.digest_every == 0) {
    const auto voted = digests_.find(version);
    // It comes when that step has passed; of one that was asked for it may be forgotten already.
    if (voted == digests_.end() && version % config_.checkpoint_every == 0) return;
    if (voted != digests_.end() && voted->second != draft.checkpoint.digest)
      return give_up(version, "its shards have digest " + to_string(draft.checkpoint.digest) +
                                  ", the votes for that step " + to_string(voted->second));
  }
  const Join* join = standard();
  if (!join) return;
  draft.storing = true;
  draft.checkpoint.fingerprint = join->fingerprint;
  draft.checkpoint.fingerprint_text = join->fingerprint_text;
  emit(leader_command::Store{draft.checkpoint, draft.record, draft.shards});
}

// What was written of it is removed when the next one is complete, or given up.
void Leader::give_up(Version version, const std::string& why) {
  Draft& draft = drafts_[version];
  draft.given_up = true;
  if (asked_above_) asked_above_ = std::max(*asked_above_, version);  // then another one
  draft.storing = false;
  draft.shards.clear();
  warn(step(version) + " is given up: " + why);
  leader_command::Tidy tidy{version, {}};
  for (const auto& [other, d] : drafts_)
    if (!d.given_up) tidy.below = std::min(tidy.below, other);
  for (const Checkpoint& c : group_.checkpoints()) tidy.kept.push_back(c.version);
  emit(std::move(tidy));
}

// Members vote for it, so that all write the same version; what is lost of it with an epoch is
// asked for again.
void Leader::on_event(const leader_event::AskCheckpoint&) {
  if (config_.checkpoint_every == 0 || asked_above_) return;
  asked_above_ = group_.checkpoints().empty() ? 0 : group_.checkpoints().back().version;
  ask_checkpoint();
}

void Leader::ask_checkpoint() {
  if (!asked_above_ || !group_.plan()) return;
  for (const Member& m : group_.plan()->members) send(m.who, CheckpointAsked{*asked_above_});
}

void Leader::on_event(const leader_event::Stored& e) {
  const auto it = drafts_.find(e.version);
  if (group_.end() || it == drafts_.end() || !it->second.storing) return;
  if (!e.error.empty()) return give_up(e.version, e.error);
  Published published{it->second.checkpoint, 0};
  std::vector<Version> versions{e.version};
  for (const Checkpoint& c : group_.checkpoints())
    if (c.version != e.version) versions.push_back(c.version);
  std::sort(versions.begin(), versions.end());
  const std::size_t keep = std::min<std::size_t>(config_.checkpoint_keep, versions.size());
  published.oldest = versions[versions.size() - keep];
  emit(leader_command::Propose{std::move(published)});
}

void Leader::applied(const Published& e) {
  const Version version = e.checkpoint.version;
  if (asked_above_ && version > *asked_above_) asked_above_.reset();
  drafts_.erase(drafts_.begin(), drafts_.upper_bound(version));
  digests_.erase(digests_.begin(), digests_.upper_bound(version));
  leader_command::Tidy tidy{version, {}};
  for (const Checkpoint& c : group_.checkpoints()) tidy.kept.push_back(c.version);
  emit(std::move(tidy));
}

// ---- Restarting -------------------------------------------------------------------------------

void Leader::said(const Incarnation& from, const std::string& name, const Unloadable& m) {
  const bool loading = member_now(from) && group_.start() == m.version && m.version != 0;
  if (!loading || damage_proposed_ || !group_.can_start()) return;
  damage_proposed_ = true;
  emit(leader_command::Propose{Damaged{m.version, name + ": " + m.reason}});
}

void Leader::applied(const Damaged& e) {
  warn(step(e.version) + " cannot be used: " + e.reason);
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
  drafts_.clear();
  digests_.clear();
  bad_links_.clear();
  noticed_ms_ = 0;
  restarted_ms_ = now_ms_;
  // Those who live start a new life as soon as they are told, and come back without state.
  for (const Member& m : group_.plan()->members)
    if (!certainly_dead(m.who)) tell_left_out(m.who);
}

// As many as were lost, or those who have come when the first has waited long enough.
bool Leader::newcomers_are_there() const {
  if (now_ms_ - restarted_ms_ > config_.start_timeout_ms) return true;
  const auto newcomers = waiting_joiners();
  if (newcomers.size() >= group_.plan()->members.size()) return true;
  return std::any_of(newcomers.begin(), newcomers.end(), [&](const Incarnation& who) {
    const auto it = contacts_.find(who.nonce);
    const std::uint64_t since = it == contacts_.end() ? began_ms_ : it->second.welcomed_ms;
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
