#include "collectives/device_gather.h"

#include <algorithm>
#include <utility>

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
      cut_(cut_rounds(layout, *holders_, world, round_bytes)) {
  for (const auto& pieces : cut_) {
    rounds_ = std::max(rounds_, pieces.size());
    for (const auto& piece : pieces)
      for (const SegmentRange run : piece)
        if (!held_by(self_, run)) runs_.emplace(run.first, run.count);
  }
}

bool DeviceGather::held_by(Rank rank, SegmentRange run) const {
  return std::ranges::find((*holders_)[run.first], rank) != (*holders_)[run.first].end();
}

Result<std::optional<Round>> DeviceGather::next(std::byte* memory) {
  STARLING_TRY(take());
  if (!staged_.empty() || over()) return std::optional<Round>();
  Round round;
  Staging staging(memory);
  receiving_.clear();
  const auto piece = [&](Rank owner) -> const std::vector<SegmentRange>* {
    const auto& pieces = cut_[owner.value()];
    return round_ < pieces.size() ? &pieces[round_] : nullptr;
  };
  const auto* own = piece(self_);
  for (const Rank peer : others(self_, world_)) {
    if (own)
      for (const SegmentRange run : *own)
        if (!held_by(peer, run))
          round.sends.push_back({peer, memory_.parameters(run), memory_.parameter_bytes(run)});
    const auto* theirs = piece(peer);
    if (!theirs) continue;
    for (const SegmentRange run : *theirs) {
      if (held_by(self_, run)) continue;
      const std::size_t bytes = memory_.parameter_bytes(run);
      std::byte* const at = staging.take(bytes);
      receiving_.push_back({run, at});
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

// Takes the staged runs whose proofs have arrived.
Result<> DeviceGather::take() {
  for (std::size_t i = 0; i < staged_.size();) {
    const auto proofs = proofs_.find(staged_[i].run.first);
    if (proofs == proofs_.end()) {
      ++i;
      continue;
    }
    STARLING_TRY(memory_.take_parameters(version_, staged_[i].run, staged_[i].at, proofs->second));
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

// The proofs are compared when the words of their run are staged.
Result<> DeviceGather::set_params(Version, SegmentRange segments, ByteView bytes) {
  const auto run = runs_.find(segments.first);
  if (run == runs_.end() || run->second != segments.count)
    return Error(Code::kCorrupt, "proofs of segments that do not travel together");
  proofs_[segments.first].assign(bytes.begin(), bytes.end());
  return ok();
}

}  // namespace starling::collectives
