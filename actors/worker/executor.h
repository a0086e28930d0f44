#pragma once
// An Executor carries out the orders of a worker's data plane, one after the other, on its memory
// and on the frames of its epochs, and says what came of them as events of elastic::Worker. It is a
// machine without thread, clock or socket: the thread of data_plane.h runs it, and the simulator.
//
// Its owner makes and closes connections and device transports; the executor sees their frames.

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/worker/step_clock.h"
#include "collectives/epoch.h"
#include "core/base/exact_sum.h"
#include "core/base/result.h"
#include "core/job/layout.h"
#include "core/wire/messages.h"
#include "elastic/protocol/worker.h"

namespace starling::actors {

// Damage says what is not what it was given or what was added up (docs/design.md, section 8).
struct Damage {
  const char* what = "";
  SegmentId segment = 0;
};

// Measured is what a vote says of owned segments: the exact sum of squares of their mean gradient
// and, where it is wanted, the digest of their state; the first held segment whose total is not the
// sum of its parts; and the damage, if the measured memory has changed.
struct Measured {
  ExactWords norm;
  Digest digest{};
  std::optional<SegmentId> wrong_total;
  std::optional<Damage> damage;
};

// ExecutorMemory is what is as large as the model: state, sums, totals and working parameters.
class ExecutorMemory : public collectives::GatherSource, public collectives::DeviceMemory {
 public:
  // Returns views for a reduction that begins; the totals' former
  // content is gone. The own sums expect `micro_batches` micro-batches.
  virtual collectives::Sums begin_reduce(std::uint32_t micro_batches) = 0;
  virtual CompleteLanes complete_lanes(Version version) const = 0;  // of the totals of that step
  // Returns whether all micro-batches have been added to these segments.
  virtual bool added(SegmentRange segments) const = 0;
  // Checks, before these sums leave (through the host or not), that they are what was added.
  virtual std::optional<Damage> check_sums(SegmentRange segments, Version version,
                                           bool on_device) = 0;
  virtual std::span<const SideEntry> side_entries() const = 0;
  // R4: compares the working parameters with their checksums and calls `then`: in
  // production before the call returns, in the simulator when that has taken its time.
  using Compared = std::function<void(std::optional<Damage>)>;
  virtual void compare_parameters(Version version, Compared then) = 0;
  // Checks that state is unchanged before another process gets it or its digest.
  virtual std::optional<Damage> check_state(std::span<const SegmentId> segments) const = 0;
  // Begins a gather of this version. In a second gather of the version, in another epoch,
  // compares what was published a while ago and may have been refused where it arrived.
  virtual std::optional<Damage> begin_gather(Version version) = 0;
  // Call it when all totals are there. Errors: kCorrupt, for a side entry that cannot be.
  virtual Result<> take_side_entries() = 0;
  // Owned segments are at label `version`.
  virtual Measured measure(std::span<const SegmentId> owned, Version version, bool digest) = 0;
  // R6: checks every held segment at the record's version, moves it
  // to the next version, and makes its weights working parameters.
  virtual std::optional<Damage> apply(const StepRecord& record, double peak_rate) = 0;
  virtual void clear_accumulators() = 0;
  virtual void drop_totals() = 0;
  virtual Bytes state_bytes(SegmentRange segments) const = 0;
  // Errors: kCorrupt; then nothing is taken but address space.
  virtual Result<> take_move(SegmentRange segments, Version version, ByteView states) = 0;
  virtual Digest state_part(std::span<const SegmentId> segments) const = 0;
  virtual Digest parameters_part(std::span<const SegmentId> segments) const = 0;
};

// An OpenEpoch is one epoch's frames, and how far its step has come.
struct OpenEpoch {
  OpenEpoch(collectives::EpochOptions options, const Layout& layout,
            collectives::GatherSource& source, collectives::FrameSender& to)
      : sender(to), frames(std::move(options), layout, source, to) {}

  collectives::FrameSender& sender;
  collectives::Epoch frames;
  bool given_up = false;  // Broken was told: the executor takes no frame any more
  // Set while a step is reduced: by bucket, whether its own sums were sent.
  std::optional<std::vector<bool>> sent;
  elastic::worker_command::Measure owned;  // for the vote, when all totals are there

  const EpochId& id() const { return frames.plan().id; }
};

// ExecutorOwner hears what an Executor finds. No call may destroy an epoch: the executor still uses it.
class ExecutorOwner {
 public:
  virtual ~ExecutorOwner() = default;
  virtual void tell(elastic::WorkerEvent event) = 0;
  // This life is over: all epochs are given up, and the executor does nothing any more.
  virtual void halted(int status, const std::string& reason) = 0;
  // The executor takes no frame of this epoch any more, and tells Broken next.
  // `peer`: kNoRank if the device transport is to blame.
  virtual void gave_up(OpenEpoch& epoch, Rank peer, const std::string& why) = 0;
  virtual void at(WorkPhase) {}
  virtual void mark(StepMark) {}
  virtual void gathered(OpenEpoch&) {}
};

// Threads: one at a time; the owner serialises. Borrows all that it is made with.
class Executor {
 public:
  Executor(const Layout& layout, ExecutorMemory& memory, ExecutorOwner& owner, std::string name)
      : layout_(layout), memory_(memory), owner_(owner), name_(std::move(name)) {}

  // Takes an epoch as its connections begin, and forgets it before they end (R9).
  void open(OpenEpoch& epoch) { epochs_[epoch.id()] = &epoch; }
  void close(const EpochId& epoch) { epochs_.erase(epoch); }
  OpenEpoch* find(const EpochId& epoch) const;  // null: there is none

  // Orders. Those of a step or an epoch name one that is open.
  void execute(const elastic::worker_command::SetVersion& o);
  void execute(const elastic::worker_command::SayReady& o);
  void execute(const elastic::worker_command::OpenStep& o);
  void execute(const elastic::worker_command::StartReduce& o);
  void execute(const elastic::worker_command::EndShare& o);
  void execute(const elastic::worker_command::Compare& o);
  void execute(const elastic::worker_command::SendMove& o);
  void execute(const elastic::worker_command::ComputeNorm& o);
  void execute(const elastic::worker_command::SendVote& o);
  void execute(const elastic::worker_command::Apply& o);
  void execute(const elastic::worker_command::ClearAccumulators& o);
  void execute(const elastic::worker_command::DropTotals& o);
  void execute(const elastic::worker_command::StartGather& o);
  void execute(const elastic::worker_command::ComputeDigest& o);
  // Some part of the own sums is complete: all that is final and was not sent is sent.
  void part_added();

  // From an epoch's connections; `epoch` is open.
  void on_frame(OpenEpoch& epoch, Rank from, Frame frame);
  void give_up(OpenEpoch& epoch, Rank peer, const std::string& why,
               LinkFault fault = LinkFault::kEnded);
  // From its device transport, of this attempt.
  void on_transport_ready(OpenEpoch& epoch, collectives::DeviceTransport& transport,
                          std::uint32_t attempt);
  void on_transport_lost(OpenEpoch& epoch, std::uint32_t attempt, Error why);
  void on_round(OpenEpoch& epoch, std::uint32_t attempt, Result<> ended);

  // Ends this life, for damage or another reason.
  void damaged(const Damage& damage);
  void halt(int status, const std::string& reason);
  bool is_halted() const { return halted_; }

 private:
  OpenEpoch& of(const EpochId& epoch) const;
  std::string of_segment(const char* what, SegmentId segment) const;  // for people
  bool contribute(OpenEpoch& epoch, Version version);
  void end_share(const elastic::worker_command::EndShare& o);
  std::optional<Measured> measure(Version version, const elastic::worker_command::Measure& owned);

  // Takes the events in order, until one of them gives the epoch up (R1).
  void take(OpenEpoch& epoch, collectives::EpochEvents events);
  void take(OpenEpoch& epoch, const collectives::epoch_event::Reduced& e);
  void take(OpenEpoch& epoch, const epoch_event::Gathered& e);
  void take(OpenEpoch& epoch, const collectives::epoch_event::CopyDiffers& e);
  void take(OpenEpoch& epoch, const collectives::epoch_event::MoveArrived& e);
  void take(OpenEpoch& epoch, const collectives::epoch_event::Wrong& e);
  void take(OpenEpoch&, epoch_event::GatherBegun& e) { owner_.tell(std::move(e)); }
  void take(OpenEpoch&, epoch_event::LedgerArrived& e) { owner_.tell(std::move(e)); }
  void take(OpenEpoch&, epoch_event::VoteArrived& e) { owner_.tell(std::move(e)); }
  void take(OpenEpoch&, epoch_event::PeerReady& e) { owner_.tell(e); }

  const Layout& layout_;
  ExecutorMemory& memory_;
  ExecutorOwner& owner_;
  const std::string name_;  // of the worker
  std::map<EpochId, OpenEpoch*> epochs_;
  bool halted_ = false;
};

}  // namespace starling::actors
