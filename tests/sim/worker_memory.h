#pragma once
// A simulated worker's memory as the executor of its orders sees it (actors/worker/executor.h).

#include "actors/worker/executor.h"
#include "tests/sim/store.h"

namespace starling::sim {

class WorkerProcess;

class WorkerMemory : public actors::ExecutorMemory {
 public:
  explicit WorkerMemory(WorkerProcess& process);

  // The own sums and totals are from here on those of this epoch's step.
  void reduces(const actors::OpenEpoch& epoch) {
    holders_ = epoch.frames.holders();
    self_ = epoch.frames.self();
  }

  // actors::ExecutorMemory
  collectives::Sums begin_reduce(std::uint32_t micro_batches) override;
  CompleteLanes complete_lanes(Version version) const override;
  bool added(SegmentRange segments) const override;
  std::optional<actors::Damage> check_sums(SegmentRange segments, Version version,
                                           bool on_device) override;
  std::span<const SideEntry> side_entries() const override { return store_.side; }
  void compare_parameters(Version version, Compared then) override;
  std::optional<actors::Damage> check_state(std::span<const SegmentId>) const override {
    return std::nullopt;
  }
  std::optional<actors::Damage> begin_gather(Version version) override;
  Result<> take_side_entries() override { return ok(); }
  actors::Measured measure(std::span<const SegmentId> owned, Version version, bool digest) override;
  std::optional<actors::Damage> apply(const StepRecord& record, double peak_rate) override;
  void clear_accumulators() override { store_.clear_accumulators(); }
  void drop_totals() override { store_.clear_totals(); }
  Bytes state_bytes(SegmentRange segments) const override;
  Result<> take_move(SegmentRange segments, Version version, ByteView states) override;
  Digest state_part(std::span<const SegmentId> segments) const override;
  Digest parameters_part(std::span<const SegmentId> segments) const override;
  // collectives::GatherSource
  void publish(Version version, SegmentRange segments) override;
  Bytes params(SegmentRange segments) override;
  std::vector<std::uint64_t> checksums(SegmentRange segments) override;
  Result<> set_params(Version version, SegmentRange segments, ByteView bytes) override;
  // collectives::DeviceMemory
  std::byte* sums(SegmentRange segments) override;
  std::byte* totals(SegmentRange segments) override;
  void add(SegmentRange segments, std::span<const std::byte* const> received) override;
  void take_totals(SegmentRange segments, const std::byte* staged) override;
  std::size_t parameter_bytes(SegmentRange segments) const override;
  std::byte* parameters(SegmentRange segments) override;
  Bytes proofs(SegmentRange segments) override;
  Result<> take_parameters(Version version, SegmentRange segments, const std::byte* staged,
                           ByteView proofs) override;

 private:
  std::optional<actors::Damage> params_damage(Version version = kNoVersion) const;

  WorkerProcess& process_;
  Store& store_;
  const Numbers& numbers_;
  // While a step is reduced: micro-batches that the own sums are to have, and the ranks that are to
  // have totals.
  std::uint32_t share_ = 0;
  Holders holders_;
  Rank self_ = 0;
  Version gathering_ = kNoVersion;  // of the last gather
};

}  // namespace starling::sim
