#pragma once
// What a worker holds that is as large as the model: state, sums and totals, and all the work on
// them. Decides nothing and knows no connection.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "actors/worker/arrivals.h"
#include "actors/worker/setup.h"
#include "actors/worker/step_clock.h"
#include "actors/worker/workbench.h"
#include "collectives/direct_memory.h"
#include "collectives/gather.h"
#include "collectives/sums.h"
#include "core/base/exact_sum.h"
#include "core/wire/messages.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"
#include "kernels/grid/totals.h"

namespace starling::actors {

// Something here is not what it was given or what was added up (docs/design.md, section 8).
struct Damage {
  const char* what = "";
  SegmentId segment = 0;
};

// Threads: the data plane's (actors/worker/data_plane.h), unless a function says otherwise. All that
// takes long counts in progress(), piece by piece.
class WorkerMemory : public collectives::GatherSource, public collectives::DirectMemory {
 public:
  WorkerMemory(std::shared_ptr<const TrainingSetup> setup, std::string worker);
  ~WorkerMemory() override;

  // Threads: any.
  Workbench& workbench() { return workbench_; }
  std::uint64_t progress() const { return progress_; }

  const Layout& layout() const { return layout_; }
  const kernels::State& state() const { return state_; }

  // ---- Segments -------------------------------------------------------------------------------
  // Keeps copies of exactly these segments. `fresh`: those that have no content get that of version
  // 0; working parameters are left alone, as what a step has begun may go on.
  // Errors: as the model's, of what is fresh.
  Result<> hold(const std::vector<bool>& segments, bool fresh);
  // Working parameters, and these segments, of version 0.
  Result<> initialise(const std::vector<bool>& segments);
  // What was read from a checkpoint. Errors: kCorrupt, of what cannot be this job's.
  Result<> take_loaded(const SegmentStates& states, Version version);
  // Has the kernel find memory for what the plan gives this worker to hold and, the first time, for
  // what every step writes; on a thread that lets others go first. A huge page takes a machine that
  // lends its memory out up to 10 ms, which else the first step of an epoch waits for.
  void prepare(const Plan& plan, Rank self);
  Bytes state_bytes(SegmentRange segments) const { return state_.state_bytes(segments); }
  // Errors: kCorrupt, and nothing is taken but address space.
  Result<> take_move(SegmentRange segments, Version version, ByteView states);

  // ---- A step ---------------------------------------------------------------------------------
  // Views for a reduction that begins; what came before in totals is gone. So many micro-batches are
  // expected in the own sums.
  collectives::Sums begin_reduce(std::uint32_t micro_batches);
  CompleteLanes complete_lanes(Version version) const;  // of the totals of that step
  // Whether nothing is added to these segments any more.
  bool added(SegmentRange segments) const;
  // Their sums before they leave, through the host or not: they are what was added.
  std::optional<Damage> check_sums(SegmentRange segments, Version version, bool direct);
  std::span<const SideEntry> side_entries() const { return accumulators_.side(); }
  // R4: before the rows of a share leave, the working parameters that it was computed from are what
  // they were.
  std::optional<Damage> check_parameters(Version version);
  // Before anybody else is given state or its digest: it is what it was.
  std::optional<Damage> check_state(std::span<const SegmentId> segments) const;
  // A gather of this version begins. Once more, in another epoch than before: what was published a
  // while ago, and was refused where it arrived maybe, is compared.
  std::optional<Damage> begin_gather(Version version);
  // All totals are there. Errors: kCorrupt, of a side entry that cannot be.
  Result<> take_side_entries();
  // What a vote says of owned segments, which are at label `version`: the exact sum of squares of
  // their mean gradient and, where it is wanted, the digest of their state. And the first held
  // segment whose total is not the sum of its parts; and whether what was measured is not what it
  // was.
  struct Measured {
    ExactWords norm;
    Digest digest{};
    std::optional<SegmentId> wrong_total;
    std::optional<Damage> damage;
  };
  Measured measure(std::span<const SegmentId> owned, Version version, bool digest,
                   StepClock& clock);
  // R6: every held segment at the record's version goes to the next one, checked before, and its
  // weights become working parameters.
  std::optional<Damage> apply(const StepRecord& record, StepClock& clock);
  void clear_accumulators() { accumulators_.clear(); }
  void drop_totals() { totals_.clear(); }

  // ---- Copies and digests ---------------------------------------------------------------------
  // The state of these segments, which have this label. Takes as long as copying it within memory.
  // One copy at most: being filled, written, or waiting for the next checkpoint.
  std::optional<Damage> stage(std::span<const SegmentId> segments, Version version);
  std::shared_ptr<SegmentStates> take_staged() { return std::move(staged_); }
  void give_back(std::shared_ptr<SegmentStates> staged) { staged_ = std::move(staged); }
  Digest state_part(std::span<const SegmentId> segments) const {
    return state_.digest_part(segments);
  }
  Digest parameters_part(std::span<const SegmentId> segments) const {
    return state_.parameters_part(segments);
  }
  // A copy of the working parameters when training is over. All held state is dropped before it, so
  // that the end takes no more memory than the steps did.
  std::vector<float> trained_parameters();

  // collectives::GatherSource
  // Where working parameters are not at that version already.
  void publish(Version version, SegmentRange segments) override;
  Bytes params(SegmentRange segments) override;
  std::vector<std::uint64_t> checksums(SegmentRange segments) override;
  Result<> set_params(Version version, SegmentRange segments, ByteView bytes) override;

  // collectives::DirectMemory
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
  // Of a total whose fifth lane does not hold.
  std::optional<SegmentId> wrong_total(std::optional<SegmentId> found) const;
  void publish(std::span<const SegmentId> segments, Version version);

  const std::shared_ptr<const TrainingSetup> setup_;
  const Layout& layout_;
  const std::string worker_;
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
  bool prepared_ = false;           // once: what every step writes
  std::atomic<bool> is_preparing_ = false;
  std::jthread preparing_;
};

}  // namespace starling::actors
