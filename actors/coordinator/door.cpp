#include "actors/coordinator/door.h"

namespace starling::actors {
namespace {

constexpr std::size_t kMessageBytes = 512;  // of any: names, its place in a mailbox

std::size_t bytes_of(const Arrival& arrival) {
  if (const auto* step = std::get_if<Progress>(&arrival.body))
    return kMessageBytes + step->ledger.size() * sizeof(LedgerRow);
  if (const auto* report = std::get_if<Report>(&arrival.body))
    return kMessageBytes + 4 * (report->share.size() + report->done.size()) + report->copies.size();
  if (const auto* shard = std::get_if<ShardWritten>(&arrival.body))
    return kMessageBytes + shard->shard.segments.size() * sizeof(SegmentDigest);
  if (const auto* raft = std::get_if<RaftMessage>(&arrival.body)) {
    std::size_t bytes = kMessageBytes;
    for (const RaftEntry& entry : raft->entries) bytes += sizeof entry + entry.data.size();
    return bytes;
  }
  return kMessageBytes;
}

}  // namespace

bool Door::enter(const Arrival& arrival) {
  const std::size_t bytes = bytes_of(arrival);
  const auto* step = std::get_if<Progress>(&arrival.body);
  const std::lock_guard lock(mutex_);
  if (step && steps_.count({arrival.from.nonce, step->record.version})) return false;
  // One message is let in whatever its size: frames have a limit of their own.
  const bool full = bytes_ != 0 && bytes_ + bytes > kBytesMax;
  const bool full_of_steps = step && step_bytes_ != 0 && step_bytes_ + bytes > kStepBytesMax;
  if (full || full_of_steps) {
    ++turned_away_;
    return false;
  }
  bytes_ += bytes;
  if (!step) return true;
  step_bytes_ += bytes;
  steps_.emplace(arrival.from.nonce, step->record.version);
  return true;
}

void Door::leave(const Arrival& arrival) {
  const std::size_t bytes = bytes_of(arrival);
  const auto* step = std::get_if<Progress>(&arrival.body);
  const std::lock_guard lock(mutex_);
  bytes_ -= bytes;
  if (!step) return;
  step_bytes_ -= bytes;
  steps_.erase({arrival.from.nonce, step->record.version});
}

std::uint64_t Door::turned_away() const {
  const std::lock_guard lock(mutex_);
  return turned_away_;
}

}  // namespace starling::actors
