#pragma once
// DeviceGather moves the words of one gather over the device transport (docs/design.md, section 5,
// step 5): owners' working parameters to the ranks that hold no copy. It stands between a Gather
// and its source: frames carry proofs instead of parameters (gather.h, GatherOptions::on_device),
// and DeviceGather takes what the transport brings when its proofs are there and hold.

#include <map>

#include "collectives/device_memory.h"
#include "collectives/gather.h"
#include "collectives/rounds.h"

namespace starling::collectives {

// Threads: one at a time; the caller serialises. Ownership: borrows layout, source and memory.
class DeviceGather final : public RoundUser, public GatherSource {
 public:
  // The first round of a DeviceGather may begin when the Gather has started.
  DeviceGather(const Layout& layout, Holders holders, std::uint32_t world, Rank self,
               Version version, GatherSource& source, DeviceMemory& memory,
               std::size_t round_bytes = kRoundBytes);

  // RoundUser. A round begins when all of the last one is taken. Errors: its words do not hold.
  Result<std::optional<Round>> next(std::byte* staging) override;
  Result<> ended() override;
  bool over() const override { return round_ == rounds_ && staged_.empty(); }

  // GatherSource, for the Gather.
  void publish(Version version, SegmentRange segments) override;
  Bytes params(SegmentRange segments) override;
  std::vector<std::uint64_t> checksums(SegmentRange segments) override;
  Result<> set_params(Version version, SegmentRange segments, ByteView bytes) override;

 private:
  struct Staged {
    SegmentRange range;
    const std::byte* at;
  };
  Result<> take();

  const Holders holders_;
  const std::uint32_t world_;
  const Rank self_;
  const Version version_;
  GatherSource& source_;
  DeviceMemory& memory_;
  const Cut cut_;
  const std::size_t rounds_;
  std::size_t round_ = 0;
  std::vector<Staged> receiving_,
      staged_;  // of the round under way; of the last one, not taken yet
  std::map<SegmentId, std::uint32_t> ranges_;  // of others, not held here: first segment, how many
  std::map<SegmentId, Bytes> proofs_;          // of ranges, by the first segment
};

}  // namespace starling::collectives
