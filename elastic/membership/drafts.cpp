#include "elastic/membership/drafts.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "elastic/protocol/checkpoint_turn.h"

namespace starling::elastic {
namespace {

using namespace draft_command;

// Besides drafts whose manifest is being written: a skipped one, one whose last messages are under
// way, and the next. A member cannot begin a version while another member's part of an earlier one
// is not written, so there are never many.
constexpr std::size_t kDraftsMax = 3;
constexpr std::size_t kDigestsMax = 4;  // of versions whose shards may come late

}  // namespace

// Whether this job writes a checkpoint of this version.
bool Drafts::wanted(Version version) const {
  const bool asked = asked_above_ && version > *asked_above_;
  return config_.checkpoint.every != 0 && (version % config_.checkpoint.every == 0 || asked);
}

// All parts of one version are the same bits, whichever worker and epoch wrote them.
DraftCommands Drafts::take(const std::string& name, const ShardWritten& part,
                           const Origin& origin) {
  Draft* draft = draft_of(part);
  if (!draft || draft->state != State::kOpen) return std::exchange(commands_, {});
  if (!part.error.empty()) {
    give_up(part.version, name + ": " + part.error);
    return std::exchange(commands_, {});
  }
  Shard shard{part.shard.file, part.shard.bytes, {}};
  for (const SegmentDigest& s : part.shard.segments) {
    if (s.segment >= config_.segments || draft->segments[s.segment]) continue;
    draft->segments[s.segment] = true;
    draft->checkpoint.digest = draft->checkpoint.digest + s.digest;
    shard.segments.push_back(s);
  }
  if (!shard.segments.empty()) draft->shards.push_back(std::move(shard));
  store_if_complete(part.version, origin);
  return std::exchange(commands_, {});
}

// The draft of this part; null: the job does not want this version, or the part comes too late.
Drafts::Draft* Drafts::draft_of(const ShardWritten& part) {
  const Version version = part.version;
  if (version == 0 || version > config_.steps || !wanted(version)) return nullptr;
  const auto& complete = group_.checkpoints();
  if (!complete.empty() && version <= complete.back().version) return nullptr;
  if (drafts_.size() >= kDraftsMax && version < drafts_.begin()->first) return nullptr;
  const auto [it, fresh] = drafts_.try_emplace(version);
  if (fresh) {
    it->second.checkpoint.version = version;
    it->second.segments.resize(config_.segments);
    it->second.record = part.record;
    make_room(version);
  }
  return &it->second;
}

// Drops the oldest draft before this version that is not being stored.
void Drafts::make_room(Version version) {
  const auto self = drafts_.find(version);
  const auto oldest = std::find_if(drafts_.begin(), self,
                                   [](const auto& d) { return d.second.state != State::kStoring; });
  if (drafts_.size() <= kDraftsMax || oldest == self) return;
  if (oldest->second.state == State::kOpen) give_up(oldest->first, "some parts of it are missing");
  drafts_.erase(oldest);
}

DraftCommands Drafts::passed(const StepRecord& record, const Origin& origin) {
  if (config_.elastic.digest_every == 0 || record.version % config_.elastic.digest_every != 0)
    return {};
  if (!wanted(record.version)) return {};
  digests_[record.version] = record.digest;
  if (digests_.size() > kDigestsMax) digests_.erase(digests_.begin());
  store_if_complete(record.version, origin);
  return std::exchange(commands_, {});
}

// Stores a draft that is whole, if its digest is the one in the votes, where votes carry one.
void Drafts::store_if_complete(Version version, const Origin& origin) {
  const auto it = drafts_.find(version);
  if (it == drafts_.end() || it->second.state != State::kOpen) return;
  Draft& draft = it->second;
  if (!std::all_of(draft.segments.begin(), draft.segments.end(), [](bool there) { return there; }))
    return;
  if (config_.elastic.digest_every != 0 && version % config_.elastic.digest_every == 0) {
    const auto voted = digests_.find(version);
    // The digest comes when that step has passed; a requested version's may be forgotten by now.
    if (voted == digests_.end() && version % config_.checkpoint.every == 0) return;
    if (voted != digests_.end() && voted->second != draft.checkpoint.digest)
      return give_up(version, "its shards have digest " + to_string(draft.checkpoint.digest) +
                                  ", the votes for that step " + to_string(voted->second));
  }
  if (!origin.standard) return;
  draft.state = State::kStoring;
  draft.checkpoint.fingerprint = origin.standard->fingerprint;
  draft.checkpoint.fingerprint_text = origin.standard->fingerprint_text;
  draft.checkpoint.data = origin.data;
  draft.checkpoint.rates = group_.rates();
  // Doubts of later steps than those in it are none of this checkpoint.
  if (origin.doubted_from < version) draft.checkpoint.doubted_from = origin.doubted_from;
  commands_.push_back(Store{draft.checkpoint, draft.record, draft.shards});
}

// Gives a draft up; its files go when the next one is complete, or given up. A member that skips a
// version says so while others still write an earlier one; no member begins a version before all
// earlier ones are over. So no member writes below a version of which a part has arrived.
void Drafts::give_up(Version version, const std::string& why) {
  const auto it = drafts_.find(version);
  STARLING_CHECK(it != drafts_.end());
  STARLING_CHECK(it->second.state != State::kGivenUp);
  it->second.state = State::kGivenUp;
  it->second.shards.clear();
  if (asked_above_) asked_above_ = std::max(*asked_above_, version);  // ask for a later one
  // The one before it may become complete yet.
  if (!why.ends_with(CheckpointTurn::kStillWriting)) given_up_ = GivenUp{version, why};
  commands_.push_back(
      Warn{"checkpoint of step " + std::to_string(version) + " is given up: " + why});
  Tidy tidy = tidy_below(0);
  for (const auto& [other, draft] : drafts_) {
    const bool begun =
        std::find(draft.segments.begin(), draft.segments.end(), true) != draft.segments.end();
    if (begun) tidy.below = std::max(tidy.below, std::min(other, version));
  }
  for (const auto& [other, draft] : drafts_)
    if (draft.state != State::kGivenUp) tidy.below = std::min(tidy.below, other);
  if (tidy.below != 0) commands_.push_back(std::move(tidy));
}

DraftCommands Drafts::stored(Version version, const std::string& error) {
  const auto it = drafts_.find(version);
  if (group_.end() || it == drafts_.end() || it->second.state != State::kStoring) return {};
  if (!error.empty()) {
    give_up(version, error);
    return std::exchange(commands_, {});
  }
  Published published{it->second.checkpoint};
  std::vector<Version> versions{version};
  for (const Checkpoint& c : group_.checkpoints())
    if (c.version != version) versions.push_back(c.version);
  std::sort(versions.begin(), versions.end());
  const std::size_t keep = std::min<std::size_t>(config_.checkpoint.keep, versions.size());
  published.oldest = versions[versions.size() - keep];
  // Before the data are compared, the run may turn out to be another job's from its start on. Then
  // it goes back to the newest checkpoint that is not in doubt, or to its start where all are.
  if (published.checkpoint.doubted_from != kNoVersion) {
    for (const Checkpoint& c : group_.checkpoints())
      if (c.doubted_from == kNoVersion ||
          (published.spared == kNoVersion && c.version == group_.start()))
        published.spared = c.version;
  }
  return {Propose{std::move(published)}};
}

DraftCommands Drafts::published(Version version) {
  if (asked_above_ && version > *asked_above_) asked_above_.reset();
  given_up_.reset();
  drafts_.erase(drafts_.begin(), drafts_.upper_bound(version));
  digests_.erase(digests_.begin(), digests_.upper_bound(version));
  return {tidy_below(version)};
}

Tidy Drafts::tidy_below(Version version) const {
  Tidy tidy{version, {}};
  for (const Checkpoint& c : group_.checkpoints()) tidy.kept.push_back(c.version);
  return tidy;
}

bool Drafts::ask() {
  if (config_.checkpoint.every == 0 || asked_above_) return false;
  asked_above_ = group_.checkpoints().empty() ? Version{0} : group_.checkpoints().back().version;
  return true;
}

bool Drafts::stores_asked() const {
  return asked_above_ && std::ranges::any_of(drafts_, [&](const auto& draft) {
           return draft.first > *asked_above_ && draft.second.state == State::kStoring;
         });
}

void Drafts::epoch_begins() {
  if (asked_above_ && !drafts_.empty())
    asked_above_ = std::max(*asked_above_, drafts_.rbegin()->first);
}

void Drafts::forget() {
  drafts_.clear();
  digests_.clear();
}

DraftCommands Drafts::withdraw_above(Version version) {
  forget();
  return {Tidy{0, {}, version}};
}

void Drafts::check_invariants() const {
  STARLING_CHECK(digests_.size() <= kDigestsMax);
  if (config_.checkpoint.every == 0) STARLING_CHECK(drafts_.empty());
  if (config_.checkpoint.every == 0) STARLING_CHECK(!asked_above_);
  for (const auto& [version, draft] : drafts_) {
    STARLING_CHECK(draft.checkpoint.version == version);
    STARLING_CHECK(draft.segments.size() == config_.segments);
    if (draft.state == State::kGivenUp) STARLING_CHECK(draft.shards.empty());
    if (draft.state == State::kStoring) STARLING_CHECK(!draft.shards.empty());
  }
}

}  // namespace starling::elastic
