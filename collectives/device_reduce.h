#pragma once
// DeviceReduce moves one step's words over the device transport (docs/design.md, section 5, step 2):
// sums to their owners, totals to the replicas. Lanes and side entries go in frames, and Reduce
// accepts the totals by them (reduce.h, ReduceOptions::on_device). Received words are not checked
// here: the weighted sum of each total is checked before the vote (design.md, section 8).
//
// Round k brings piece k of each owner's segments to the owner, which adds it up, and the totals of
// piece k-1 to their replicas.

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
  // Received says where a run's words lie: from each other contributor, or from its owner.
  struct Received {
    SegmentRange run;
    std::vector<const std::byte*> from;
  };
  std::uint32_t world() const { return static_cast<std::uint32_t>(contributors_.size()); }
  const std::vector<SegmentRange>* piece(Rank owner, std::size_t round) const;
  bool held_by(Rank rank, SegmentRange run) const;
  std::size_t bytes(SegmentRange run) const { return layout_.bytes_of(run, What::kSums); }

  const Layout& layout_;
  const Holders holders_;
  const std::vector<bool> contributors_;
  const Rank self_;
  DeviceMemory& memory_;
  const Cut cut_;
  std::size_t round_ = 0, rounds_ = 0;
  std::vector<Received> to_add_, to_take_;  // of the round under way
};

}  // namespace starling::collectives
