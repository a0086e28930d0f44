#include "collectives/device_gather.h"

#include <utility>

#include "collectives/ranges.h"
#include "core/base/check.h"

namespace starling::collectives {

DeviceGather::DeviceGather(const Layout& layout, Holders holders, std::uint32_t world, Rank self,
                           Version version, GatherSource& source, DeviceMemory& memory,
                           std::size_t round_bytes)
    : holders_(std::move(holders)),
      world_(world),
      self_(self),
      version_(version),
      source_(source),
      memory_(memory),
      cut_(layout, *holders_, world, round_bytes),
      rounds_(cut_.rounds()) {
  for (const Rank owner : others(self_, world_))
    for (std::size_t round = 0; round < rounds_; ++round)
      for (const SegmentRange range : cut_.ranges(owner, round))
        if (!holds(*holders_, self_, range)) ranges_.emplace(range.first, range.count);
}

Result<std::optional<Round>> DeviceGather::next(std::byte* memory) {
  STARLING_TRY(take());
  if (!staged_.empty() || over()) return std::optional<Round>();
  Round round;
  Staging staging(memory);
  receiving_.clear();
  for (const Rank peer : others(self_, world_)) {
    for (const SegmentRange range : cut_.ranges(self_, round_))
      if (!holds(*holders_, peer, range))
        round.sends.push_back({peer, memory_.parameters(range), memory_.parameter_bytes(range)});
    for (const SegmentRange range : cut_.ranges(peer, round_)) {
      if (holds(*holders_, self_, range)) continue;
      const std::size_t bytes = memory_.parameter_bytes(range);
      std::byte* const at = staging.take(bytes);
      receiving_.push_back({range, at});
      round.receives.push_back({peer, at, bytes});
    }
  }
  return std::optional(std::move(round));
}

Result<> DeviceGather::ended() {
  STARLING_CHECK(round_ < rounds_ && staged_.empty());
  staged_ = std::exchange(receiving_, {});
  ++round_;
  return take();
}

// Takes the staged ranges whose proofs have arrived.
Result<> DeviceGather::take() {
  for (std::size_t i = 0; i < staged_.size();) {
    const auto proofs = proofs_.find(staged_[i].range.first);
    if (proofs == proofs_.end()) {
      ++i;
      continue;
    }
    STARLING_TRY(
        memory_.take_parameters(version_, staged_[i].range, staged_[i].at, proofs->second));
    proofs_.erase(proofs);
    staged_.erase(staged_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return ok();
}

void DeviceGather::publish(Version version, SegmentRange segments) {
  source_.publish(version, segments);
}

Bytes DeviceGather::params(SegmentRange segments) {
  return memory_.proofs(segments);
}

std::vector<std::uint64_t> DeviceGather::checksums(SegmentRange segments) {
  return source_.checksums(segments);
}

// The proofs are compared when the words of their range are staged.
Result<> DeviceGather::set_params(Version, SegmentRange segments, ByteView bytes) {
  const auto range = ranges_.find(segments.first);
  if (range == ranges_.end() || range->second != segments.count)
    return Error(Code::kCorrupt, "proofs of segments that do not travel together");
  proofs_[segments.first].assign(bytes.begin(), bytes.end());
  return ok();
}

}  // namespace starling::collectives
