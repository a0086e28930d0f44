#pragma once
// DeviceReduce moves one step's words over the device transport (docs/design.md, section 5, step 2):
// sums to their owners, totals to the replicas. Lanes and side entries go in frames, and Reduce
// accepts the totals by them (reduce.h, ReduceOptions::on_device). Received words are not checked
// here: the weighted sum of each total is checked before the vote (design.md, section 8).
//
// Round k brings the k-th ranges of each owner's segments to the owner, which adds them up, and the
// totals of the ranges before to their replicas.

#include "collectives/device_memory.h"
#include "collectives/rounds.h"

namespace starling::collectives {

// Threads: one at a time; the caller serialises. Ownership: borrows layout and memory.
class DeviceReduce final : public RoundUser {
 public:
  // The first round may begin when the sums of all ranks are final. `contributors`: by rank, whose
  // words are sent (reduce.h, ReduceOptions).
  DeviceReduce(const Layout& layout, Holders holders, std::vector<bool> contributors, Rank self,
               DeviceMemory& memory, std::size_t round_bytes = kRoundBytes);

  Result<std::optional<Round>> next(std::byte* staging) override;
  Result<> ended() override;
  bool over() const override { return round_ == rounds_; }

 private:
  // Received says where a range's words lie: from each other contributor, or from its owner.
  struct Received {
    SegmentRange range;
    std::vector<const std::byte*> from;
  };
  std::uint32_t world() const { return static_cast<std::uint32_t>(contributors_.size()); }
  // Returns the owner's ranges of the round before, whose totals this round brings.
  std::span<const SegmentRange> added(Rank owner) const {
    return round_ == 0 ? std::span<const SegmentRange>() : cut_.ranges(owner, round_ - 1);
  }
  std::size_t bytes(SegmentRange range) const { return layout_.bytes_of(range, What::kSums); }

  const Layout& layout_;
  const Holders holders_;
  const std::vector<bool> contributors_;
  const Rank self_;
  DeviceMemory& memory_;
  const Cut cut_;
  // One more than the cut has: the last one brings the last totals to their replicas.
  const std::size_t rounds_;
  std::size_t round_ = 0;
  std::vector<Received> to_add_, to_take_;  // of the round under way
};

}  // namespace starling::collectives
