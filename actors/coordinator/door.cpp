#include "actors/coordinator/door.h"

namespace starling::actors {
namespace {

constexpr std::size_t kMessageBytes = 512;  // of any message: names, its place in a mailbox

// Bytes of a message beside kMessageBytes.
struct Extra {
  std::size_t operator()(const Progress& m) const { return m.ledger.size() * sizeof(LedgerRow); }
  std::size_t operator()(const Report& m) const {
    return 4 * (m.share.size() + m.done.size()) + m.copies.size();
  }
  std::size_t operator()(const ShardWritten& m) const {
    return m.shard.segments.size() * sizeof(SegmentDigest);
  }
  std::size_t operator()(const RaftMessage& m) const {
    std::size_t bytes = 0;
    for (const RaftEntry& entry : m.entries) bytes += sizeof entry + entry.data.size();
    return bytes;
  }
  std::size_t operator()(const Enrol& m) const { return m.token.size(); }
  template <
      OneOf<Join, Heartbeat, Leave, Death, Finished, Notice, Unloadable, ChangeAsked, AdminAsked>
          Small>
  std::size_t operator()(const Small&) const {
    return 0;
  }
  // Another coordinator's answer is small.
  template <SaidByCoordinators Answer>
  std::size_t operator()(const Answer&) const {
    return 0;
  }
};

std::size_t bytes_of(const Arrival& arrival) {
  return kMessageBytes + std::visit(Extra{}, arrival.body);
}

}  // namespace

bool Door::enter(const Arrival& arrival) {
  const std::size_t bytes = bytes_of(arrival);
  const auto* step = std::get_if<Progress>(&arrival.body);
  const MutexLock lock(mutex_);
  if (step && steps_.count({arrival.from.nonce, step->record.version})) return false;
  // An empty door lets in one message of any size: frames have a limit of their own.
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
  const MutexLock lock(mutex_);
  bytes_ -= bytes;
  if (!step) return;
  step_bytes_ -= bytes;
  steps_.erase({arrival.from.nonce, step->record.version});
}

std::uint64_t Door::turned_away() const {
  const MutexLock lock(mutex_);
  return turned_away_;
}

}  // namespace starling::actors
