#pragma once
// Epoch handles one epoch's frames at one worker: the version rule (R1), frames that wait for what
// they are for, the step's reduce and gather, ledgers, votes, moves, and the word ready. A pure
// machine that the worker actor and the simulator run alike: frames and orders go in, events come
// out, in order. It decides nothing: elastic/ decides what is sent when.

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "collectives/device_gather.h"
#include "collectives/device_reduce.h"
#include "collectives/frame_sender.h"
#include "collectives/gather.h"
#include "collectives/reduce.h"
#include "collectives/session.h"
#include "core/base/result.h"
#include "core/wire/epoch_events.h"
#include "core/wire/messages.h"

namespace starling::collectives {

namespace epoch_event {
struct Reduced {  // totals of every segment held in this step are accepted (R3)
  Version version = 0;
};
using starling::epoch_event::Gathered, starling::epoch_event::GatherBegun;
using starling::epoch_event::LedgerArrived, starling::epoch_event::PeerReady;
using starling::epoch_event::VoteArrived;
struct CopyDiffers {  // of a segment held here from its owner's: the version is never complete
  Rank owner = 0;
  SegmentId segment = 0;
};
struct MoveArrived {  // a move of the plan, of state with label `version`
  Rank from = 0;
  Version version = 0;
  SegmentRange segments;
  SharedBytes frame;  // owns `states`
  ByteView states;    // as they were sent; from another process, so to be checked
};
// This rank sent something that cannot be; kNoRank: the device transport failed, or brought such
// bytes. The Epoch delivers nothing more.
struct Wrong {
  Rank peer = 0;
  Error error;
};
}  // namespace epoch_event

using EpochEvent =
    std::variant<epoch_event::Reduced, epoch_event::GatherBegun, epoch_event::Gathered,
                 epoch_event::CopyDiffers, epoch_event::MoveArrived, epoch_event::LedgerArrived,
                 epoch_event::VoteArrived, epoch_event::PeerReady, epoch_event::Wrong>;
using EpochEvents = std::vector<EpochEvent>;

struct EpochOptions {
  std::shared_ptr<const Plan> plan;
  Rank self = 0;
  bool joiner = false;  // learns the version from the first gather frame
  // The version at which the epoch is entered at once. kNoVersion: a joiner; or not yet, and all
  // frames wait until set_version().
  Version version = kNoVersion;
  SessionLimits limits;
  DeviceMemory* memory = nullptr;  // none: all steps go by TCP. Borrowed
  std::size_t round_bytes = kRoundBytes;
};

// Threads: one at a time; the caller serialises. Ownership: borrows layout, source and sender;
// what `Sums` points at from begin_reduce() until the next open_step().
class Epoch {
 public:
  Epoch(EpochOptions options, const Layout& layout, GatherSource& source, FrameSender& sender);
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;

  // Takes a frame of this epoch's connection with a rank, in the order in which they came.
  EpochEvents on_frame(Rank from, Frame frame);
  // Sets the current version: v+1 after a passed vote, or the one with which the epoch begins.
  EpochEvents set_version(Version version);

  // Begins a step: the totals of the step before have been applied, so its reduction is over, and
  // the sums of this step go to `holders`. `contributors`: see ReduceOptions. `attempt`: the attempt
  // whose transport takes this step's gather and then its reduce; 0: the epoch's connections (R17).
  // In a world of one, any attempt.
  void open_step(Holders holders, std::vector<bool> contributors, std::uint32_t attempt = 0);
  // Frames of the step's sums are added from here on. `complete`: see ReduceOptions.
  EpochEvents begin_reduce(Version step, const Sums& sums, const CompleteLanes& complete);
  // Sends the own sums of a bucket, each once, in any order.
  EpochEvents contribute(std::uint32_t bucket);
  // Sends the own side entries, all of them. Once.
  EpochEvents end_share(std::span<const SideEntry> side);
  // Publishes what this rank holds by `holders` (see Gather) and sends what it owns; the gather before
  // is over. A joiner's gather that has begun with the first frame goes on.
  EpochEvents gather(Version version, Holders holders, const StepRecord& record);

  // The transport of this attempt is ready, and votes may name it; older ones are not used any more.
  // `transport` is borrowed until lose_transport().
  void use(DeviceTransport& transport, std::uint32_t attempt) { rounds_.use(transport, attempt); }
  // The transport failed. Events: the epoch is wrong if bytes of the open step are still to go over
  // it.
  EpochEvents lose_transport(std::uint32_t attempt, Error why);
  // Tells how a round of this attempt's transport ended. If that transport was lost, nothing follows.
  EpochEvents on_round(std::uint32_t attempt, Result<> ended);

  void send_ready();
  void send_ledger(Version step, const std::vector<LedgerRow>& rows);
  void send_vote(const Vote& vote);
  // Sends state with label `version`; `record` is that of the step before.
  void send_move(Rank target, Version version, const StepRecord& record, SegmentRange segments,
                 SharedBytes states);

  const Holders& holders() const { return holders_; }                // of the open step
  bool contributes() const { return contributors_[options_.self]; }  // to the open step's sums
  const Plan& plan() const { return *options_.plan; }
  Rank self() const { return options_.self; }
  // Whether the open step's words go over the device transport; without a DeviceMemory they do not.
  bool on_device() const { return attempt_ != 0 && options_.memory != nullptr; }
  std::uint32_t world() const { return static_cast<std::uint32_t>(options_.plan->members.size()); }
  // kNoVersion: not entered yet.
  Version version() const { return session_ ? session_->version() : kNoVersion; }

 private:
  // The open step's reduction, in this order; kRounds is a state of steps on the device transport.
  enum class Reducing : std::uint8_t {
    kNone,    // there is no reduce_
    kFrames,  // frames come; device_reduce_ is not one of rounds_ yet
    kRounds,  // device_reduce_ is one of rounds_; frames still come
    kDone,    // Reduced was said
  };
  // The gather of one version, kNone or kJoiner to kGoing to kDone; the next one: kDone to kGoing.
  enum class Gathering : std::uint8_t {
    kNone,    // there is no gather_
    kJoiner,  // frames come, and gather() was not called
    kGoing,
    kDone,  // Gathered was said
  };

  void deliver(Result<std::vector<Arrival>> arrivals, EpochEvents& out);
  Result<> deliver_one(const Arrival& arrival, EpochEvents& out);
  Result<> on_gather(const Arrival& arrival, EpochEvents& out);
  Result<> on_move(const Arrival& arrival, EpochEvents& out);
  Result<> wait(std::vector<Arrival>& where, Arrival arrival);
  EpochEvents release(bool (*wanted)(FrameKind));
  void wrong(Rank peer, Error error, EpochEvents& out);
  void begin_rounds();
  void go(EpochEvents& out);
  void after_rounds(Result<> went, EpochEvents& out);
  void begin_gather(Version version, Holders holders, const StepRecord& record);
  void reduced_if_done(EpochEvents& out);
  void gathered_if_done(EpochEvents& out);
  void send_all(FrameKind kind, Version version, Bytes payload);

  const EpochOptions options_;
  const Layout& layout_;
  GatherSource& source_;
  FrameSender& sender_;
  bool broken_ = false;             // Wrong was said, in whatever state all below is
  std::optional<Session> session_;  // none: not entered yet, everything is held
  std::vector<Arrival> held_;
  std::vector<Arrival> waiting_;   // of the current version, for a collective to begin
  std::size_t waiting_bytes_ = 0;  // of both
  Holders holders_;                // of the open step
  std::vector<bool> contributors_;
  std::uint32_t attempt_ = 0;
  Rounds rounds_;
  std::optional<DeviceReduce> device_reduce_;
  std::optional<DeviceGather> device_gather_;  // before the gather, whose source it is
  std::optional<Reduce> reduce_;
  Reducing reducing_ = Reducing::kNone;
  std::optional<Gather> gather_;
  Gathering gathering_ = Gathering::kNone;
};

}  // namespace starling::collectives
