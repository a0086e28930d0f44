#include "tests/sim/shared_storage.h"

#include <algorithm>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/hash.h"

namespace starling::sim {

namespace {

// As the run that left it knew it, with the hash over its ledger and the digest that was due.
StepRecord record_of(const Reference& reference, Version v, const Settings& settings) {
  StepRecord record = reference.record(v);
  ByteWriter rows;
  for (MicroBatch m = 0; m < settings.micro_batches; ++m) {
    const LedgerRow& row = reference.row(v, m);
    rows.put(row.micro_batch);
    rows.put(row.loss);
    rows.put(row.tokens);
    rows.put(static_cast<std::uint8_t>(row.finite));
    rows.put(row.contribution);
    for (const double metric : row.metrics) rows.put(metric);
  }
  const Bytes bytes = std::move(rows).take();
  record.ledger_hash = hash64(bytes);
  if (settings.elastic.digest_every != 0 && v % settings.elastic.digest_every == 0)
    record.digest = reference.digest(v);
  return record;
}

}  // namespace

SharedStorage::SharedStorage(const Settings& settings, const Reference& reference)
    : settings_(settings), reference_(reference), random_(settings.seed, /*purpose=*/41) {}

std::vector<Checkpoint> SharedStorage::fill(Version newest) {
  std::vector<Checkpoint> all;
  for (Version v(settings_.checkpoint.every); v <= newest; v += settings_.checkpoint.every) {
    std::map<SegmentId, SegmentState> part;
    for (SegmentId s = 0; s < settings_.segments; ++s) part[s] = reference_.state(v, s);
    elastic::leader_command::Store left;
    left.checkpoint.version = v;
    left.checkpoint.digest = reference_.digest(v);
    left.checkpoint.fingerprint = kFingerprint;
    left.record = record_of(reference_, v - 1, settings_);
    left.shards = {put(v, "left", part)};
    all.push_back(left.checkpoint);
    store(left);
  }
  return all;
}

Shard SharedStorage::put(Version version, const std::string& file,
                         const std::map<SegmentId, SegmentState>& part) {
  Shard shard{file, 1, {}};
  for (const auto& [segment, state] : part)
    shard.segments.push_back({segment, Numbers::digest_of(segment, state)});
  auto& kept = folders_[version].shards[file] = part;
  if (!kept.empty() && random_.chance(settings_.damage)) ++kept.begin()->second.weights;
  return shard;
}

std::string SharedStorage::store(const elastic::leader_command::Store& order) {
  Folder& folder = folders_[order.checkpoint.version];
  for (const Shard& shard : order.shards)
    if (!folder.shards.count(shard.file)) return shard.file + " is not there";
  folder.manifest = order;
  return {};
}

void SharedStorage::tidy(const elastic::leader_command::Tidy& tidy) {
  for (auto& [version, folder] : folders_)
    if (folder.manifest && version > tidy.doubted) {
      Version& doubted_from = folder.manifest->checkpoint.doubted_from;
      doubted_from = std::min(doubted_from, tidy.doubted);
    }
  std::erase_if(folders_, [&](const auto& folder) {
    const auto& kept = tidy.kept;
    if (folder.first >= tidy.below) return false;
    if (std::find(kept.begin(), kept.end(), folder.first) != kept.end()) return false;
    return !folder.second.manifest ||
           std::any_of(kept.begin(), kept.end(), [&](Version k) { return k > folder.first; });
  });
}

std::optional<SegmentState> SharedStorage::load(Version version, SegmentId segment) const {
  const auto folder = folders_.find(version);
  if (folder == folders_.end() || !folder->second.manifest) return std::nullopt;
  for (const Shard& shard : folder->second.manifest->shards)
    for (const SegmentDigest& s : shard.segments) {
      if (s.segment != segment) continue;
      const SegmentState& state = folder->second.shards.at(shard.file).at(segment);
      if (Numbers::digest_of(segment, state) != s.digest) return std::nullopt;
      return state;
    }
  return std::nullopt;
}

const StepRecord* SharedStorage::record(Version version) const {
  const auto folder = folders_.find(version);
  const bool there = folder != folders_.end() && folder->second.manifest;
  return there ? &folder->second.manifest->record : nullptr;
}

}  // namespace starling::sim
