#pragma once
// WorkerMemory holds what is as large as the model: state, sums and totals,
// and does all the work on them. It decides nothing and knows no connection.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "actors/worker/arrivals.h"
#include "actors/worker/executor.h"
#include "actors/worker/setup.h"
#include "actors/worker/step_clock.h"
#include "actors/worker/workbench.h"
#include "core/wire/messages.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"
#include "kernels/grid/totals.h"

namespace starling::actors {

// Threads: the data plane's (actors/worker/data_plane.h), unless a
// function says otherwise. Each piece of long work counts in progress().
class WorkerMemory : public ExecutorMemory {
 public:
  // `clock` marks what a step's measuring takes, and must outlive the memory.
  WorkerMemory(std::shared_ptr<const TrainingSetup> setup, std::string worker, StepClock& clock);
  ~WorkerMemory() override;

  // Threads: any.
  Workbench& workbench() { return workbench_; }
  std::uint64_t progress() const { return progress_; }

  const Layout& layout() const { return layout_; }
  const kernels::State& state() const { return state_; }

  // ---- Segments -------------------------------------------------------------------------------
  // Keeps copies of exactly these segments. `fresh`: segments without
  // content get that of version 0; working parameters are left alone, as a
  // step that has begun may go on. Errors: the model's, for fresh segments.
  Result<> hold(const std::vector<bool>& segments, bool fresh);
  // Makes the working parameters, and these segments, of version 0.
  Result<> initialise(const std::vector<bool>& segments);
  // Takes state that was read from a checkpoint. Errors: kCorrupt, if it cannot be this job's.
  Result<> take_loaded(const SegmentStates& states, Version version);
  // Has the kernel find memory for what the plan gives this worker to hold and, the first time, for
  // what every step writes; on a thread that lets others go first. A machine that lends its memory
  // out takes up to 10 ms for a huge page, for which the epoch's first step would wait otherwise.
  void prepare(const Plan& plan, Rank self);

  // ---- Copies and digests ---------------------------------------------------------------------
  // Copies the state of these segments, which have this label. Takes as long as copying it within
  // memory. There is one copy at most: being filled, written, or waiting for the next checkpoint.
  std::optional<Damage> stage(std::span<const SegmentId> segments, Version version);
  std::shared_ptr<SegmentStates> take_staged() { return std::move(staged_); }
  void give_back(std::shared_ptr<SegmentStates> staged) { staged_ = std::move(staged); }
  // Returns a copy of the working parameters when training is over. Drops all
  // held state before, so that the end takes no more memory than the steps did.
  std::vector<float> trained_parameters();

  // ExecutorMemory
  collectives::Sums begin_reduce(std::uint32_t micro_batches) override;
  CompleteLanes complete_lanes(Version version) const override;
  bool added(SegmentRange segments) const override;
  std::optional<Damage> check_sums(SegmentRange segments, Version version, bool on_device) override;
  std::span<const SideEntry> side_entries() const override { return accumulators_.side(); }
  void compare_parameters(Version version, Compared then) override {
    then(parameters_damage(version));
  }
  std::optional<Damage> check_state(std::span<const SegmentId> segments) const override;
  std::optional<Damage> begin_gather(Version version) override;
  Result<> take_side_entries() override;
  Measured measure(std::span<const SegmentId> owned, Version version, bool digest) override;
  std::optional<Damage> apply(const StepRecord& record, double peak_rate) override;
  void clear_accumulators() override { accumulators_.clear(); }
  void drop_totals() override { totals_.clear(); }
  Bytes state_bytes(SegmentRange segments) const override { return state_.state_bytes(segments); }
  Result<> take_move(SegmentRange segments, Version version, ByteView states) override;
  Digest state_part(std::span<const SegmentId> segments) const override {
    return state_.digest_part(segments);
  }
  Digest parameters_part(std::span<const SegmentId> segments) const override {
    return state_.parameters_part(segments);
  }

  // collectives::GatherSource
  // Publishes only where the working parameters are not at that version already.
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
  void worked() { ++progress_; }
  void hold(SegmentId segment);
  void drop(SegmentId segment);
  std::optional<Damage> parameters_damage(Version version);
  // Returns the segment of a total whose fifth lane does not hold.
  std::optional<SegmentId> wrong_total(std::optional<SegmentId> found) const;
  void publish(std::span<const SegmentId> segments, Version version);

  const std::shared_ptr<const TrainingSetup> setup_;
  const Layout& layout_;
  const std::string worker_;
  StepClock& clock_;
  std::atomic<std::uint64_t> progress_ = 0;
  std::vector<std::vector<SegmentId>> parts_;  // all segments, a few at once
  kernels::State state_;
  kernels::Accumulators accumulators_;
  kernels::Totals totals_;
  Arrivals arrivals_;
  const std::uint32_t at_once_;
  Workbench workbench_;
  std::vector<SideEntry> side_received_;  // of the step that is reduced
  std::shared_ptr<SegmentStates> staged_;
  Version gathering_ = kNoVersion;  // of the last gather
  bool prepared_ = false;           // true once the memory of every step was prepared
  std::atomic<bool> is_preparing_ = false;
  std::jthread preparing_;
};

}  // namespace starling::actors
