#pragma once
// The events that happen to a Worker and the commands that it orders (worker.h). The actor
// (production) or the simulated world carries the commands out, and answers with events.
//
// Threads: none; values.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "core/wire/epoch_events.h"
#include "core/wire/messages.h"
#include "elastic/protocol/shares.h"

namespace starling::elastic {

// ---- Events -----------------------------------------------------------------------------------
namespace worker_event {
using epoch_event::Gathered, epoch_event::GatherBegun, epoch_event::LedgerArrived;
using epoch_event::PeerReady, epoch_event::VoteArrived;
struct Start {  // the process is up; `join` is what it says of itself
  Join join;
};
struct Tick {
  std::uint64_t now_ms = 0;
};
// How much the threads that work for this worker have still to do, and a number that grows with
// everything that they have done.
struct Working {
  std::uint32_t orders_left = 0;
  std::uint64_t progress = 0;
};
struct Failed {  // a command cannot be carried out here: this life is over
  int code = 0;
  std::string reason;
};
struct Received {  // from a coordinator
  Message body;
};
struct DataHashed {  // all data have been read here; zeros: they have to be read again
  Digest data{};
};
struct NoticeGiven {  // by a signal, a cloud or an application: leave in time, or a hint
  Notice notice;
};
struct Initialised {  // answer to Initialise
  EpochId epoch;
  StepRecord record{};  // of the step before the version, if that is above 0
};
struct Loading {  // on the way to Initialised: what is still to be loaded from the checkpoint
  EpochId epoch;
  std::uint32_t segments_left = 0;
};
struct NotInitialised {  // the other answer to Initialise: the checkpoint cannot be read
  EpochId epoch;
  std::string reason;
  bool here = false;  // its storage cannot be reached from here; else it is damaged
};
struct CheckpointWritten {  // answer to WriteCheckpoint
  ShardWritten shard;
};
struct Connected {  // all W-1 connections of this epoch stand
  EpochId epoch;
};
struct Broken {  // a connection of this epoch broke, or did not stand in time
  EpochId epoch;
  Rank peer = 0;  // kNoRank: none did; what they carry cannot be, or the device transport failed
  LinkFault fault = LinkFault::kEnded;
};
struct Stopped {  // answer to Stop: nothing is sent or received in this epoch any more
  EpochId epoch;
};
// An attempt to make the epoch's device transport is ready here: votes may name it (R17). Attempts
// count from 1 in each epoch; votes never name one beyond limits::kAttempts.
struct TransportReady {
  EpochId epoch;
  std::uint32_t attempt = 0;
};
struct TransportLost {  // this attempt's transport is of no use any more: no later vote names it
  EpochId epoch;
  std::uint32_t attempt = 0;
};
struct TransportChosen {  // at rank 0, for people: which way the epoch's bytes go, and why
  EpochId epoch;
  bool on_device = false;
  std::string why;
};
struct MicroBatchDone {  // sums, side list, lanes and ledger row have it
  Version version = 0;
  LedgerRow row;
  std::uint64_t took_ns = 0;  // of one compute thread, divided by their number; 0: not to be told
};
// A micro-batch of Compute::again is over; without a contribution: it was not begun.
struct Rechecked {
  Version version = 0;
  MicroBatch micro_batch = 0;
  std::optional<std::uint64_t> contribution;
};
struct Compared {  // answer to Compare: the working parameters are what they were
  EpochId epoch;
  Version version = 0;
};
// Totals of every segment held in this step are accepted (R3), and this is what a vote says of the
// owned ones. Answer to StartReduce, and to ComputeNorm.
struct Reduced {
  EpochId epoch;
  Version version = 0;
  ExactWords norm;
  Digest digest_part{};  // if it was asked for
};
struct MovedIn {  // state with label `version` of these segments arrived (R14)
  EpochId epoch;
  Version version = 0;
  SegmentRange segments;
};
struct Evaluated {  // answer to Evaluate: loss and metrics
  Version version = 0;
  std::vector<double> values;
};
struct StepTimed {  // of a Progress that went to coordinators without its times
  Version version = 0;
  double step_ms = 0;
  std::optional<Pause> pause;
};
struct DigestReady {  // answer to ComputeDigest
  EpochId epoch;
  Version version = 0;
  Digest part{};             // of the state
  Digest parameters_part{};  // of the working parameters
};
}  // namespace worker_event

using WorkerEvent =
    std::variant<worker_event::Start, worker_event::Tick, worker_event::Working,
                 worker_event::Failed, worker_event::Received, worker_event::DataHashed,
                 worker_event::NoticeGiven, worker_event::Initialised, worker_event::Loading,
                 worker_event::NotInitialised, worker_event::CheckpointWritten,
                 worker_event::Connected, worker_event::Broken, worker_event::Stopped,
                 worker_event::PeerReady, worker_event::TransportReady, worker_event::TransportLost,
                 worker_event::TransportChosen, worker_event::MicroBatchDone,
                 worker_event::Rechecked, worker_event::Compared, worker_event::Reduced,
                 worker_event::MovedIn, worker_event::LedgerArrived, worker_event::VoteArrived,
                 worker_event::GatherBegun, worker_event::Gathered, worker_event::StepTimed,
                 worker_event::DigestReady, worker_event::Evaluated>;

// ---- Commands ---------------------------------------------------------------------------------
namespace worker_command {
struct ToCoordinators {  // to all of them; followers drop what only a leader needs
  Message body;
  std::optional<std::uint32_t> turn{};  // to one of them only: this, modulo how many there are
};
// Version 0: build parameters and exponents from the seed. Above: load the state of these segments
// from the checkpoint of that version. -> Initialised or NotInitialised
struct Initialise {
  EpochId epoch;
  Version version = 0;
  std::vector<bool> segments;  // that the plan gives this worker
};
struct Hold {  // keep copies of exactly these segments, free the others
  std::vector<bool> segments;
  bool fresh = false;  // build those that are missing from the initial parameters
};
struct Connect {  // open this epoch's connections; -> Connected or Broken
  std::shared_ptr<const Plan> plan;
  Rank self = 0;
  // The version whose frames are current (frames of version+1 wait); kNoVersion: all frames wait,
  // or, for a joiner, the first gather frame tells.
  Version version = kNoVersion;
  bool joiner = false;
};
struct SetVersion {  // frames of this version are current now
  EpochId epoch;
  Version version = 0;
};
struct SayReady {  // joiner: tell all members of this epoch; -> PeerReady there
  EpochId epoch;
};
struct Leave {  // send LEFT, flush, read on until the peers' LEFT (R1)
  EpochId epoch;
};
struct Stop {  // close everything of this epoch now; -> Stopped (also if it was left)
  EpochId epoch;
};
// Micro-batches to compute, in this order; replaces what is not begun. A micro-batch in progress is
// finished and counts (R8). A pass that needs a part of the parameters which is not there yet at
// `version` waits for it.
struct Compute {
  Version version = 0;
  std::vector<MicroBatch> micro_batches;
  LossScale scale{};  // of that step
  // Computed after these, of any share: their contributions are compared, and added to nothing.
  // A Rechecked answers each, also if another order comes before it is begun.
  std::vector<MicroBatch> again{};
};
struct Compare {  // the working parameters with their checksums; -> Compared, or this life's end
  EpochId epoch;
  Version version = 0;
};
// Frames of the current version that arrive before the command that wants them (OpenStep,
// StartGather) wait for it.
//
// `attempt`, the same in all commands of a step: the attempt whose transport takes its bytes; 0: the
// epoch's connections do (R17).
struct OpenStep {  // contributions and totals of this step may arrive from now on
  EpochId epoch;
  Version version = 0;
  Holders holders;
  std::vector<bool> contributors;  // by rank: whose sums are awaited, and sent (R20)
  std::uint32_t attempt = 0;
};
// Measure names what a vote says of owned segments: the exact sum of squares over their totals and,
// if it is wanted, the digest of their state, which is at the step's label.
struct Measure {
  std::vector<SegmentId> segments;
  bool digest = false;
};
// Goes out with Compute. The sums of a bucket are sent as soon as all micro-batches of the share
// (`micro_batches`) are added to all of it; complete buckets at once. -> Reduced
struct StartReduce {
  EpochId epoch;
  Version version = 0;
  std::uint32_t micro_batches = 0;
  Measure owned;
  std::uint32_t attempt = 0;
};
struct SendMove {  // state of these segments (label `version`) to a rank
  EpochId epoch;
  Version version = 0;
  SegmentRange segments;
  Rank target = 0;
  StepRecord record;  // of step version-1
};
struct EndShare {  // the share is done: its rows and side entries to all other members
  EpochId epoch;
  Version version = 0;
  std::vector<LedgerRow> rows;
};
struct ComputeNorm {  // of totals that an epoch before this one accepted; -> Reduced
  EpochId epoch;
  Version version = 0;
  Measure owned;
};
struct SendVote {  // to all other members
  EpochId epoch;
  Vote vote;
};
// Update all held segments with their totals: label version+1 (R6). Their working parameters are
// those of version+1 from here on.
struct Apply {
  StepRecord record;     // of step record.version
  double peak_rate = 0;  // of that step (R19); 0: the job's
};
struct ClearAccumulators {};  // only after the vote passed (R7)
struct DropTotals {};
// Publish the held segments, send parameters of owned ones to the members without a copy, receive
// those of segments not held here; -> Gathered. Passes may read parameters of this version that are
// here already: nothing writes them again.
struct StartGather {
  EpochId epoch;
  Version version = 0;
  StepRecord record;
  Holders holders;  // those with copies of this version
  std::uint32_t attempt = 0;
};
struct ComputeDigest {  // over these segments; -> DigestReady
  EpochId epoch;
  Version version = 0;
  std::vector<SegmentId> segments;
};
struct Evaluate {  // the job's last version on all held-out batches; -> Evaluated
  Version version = 0;
};
struct WriteCheckpoint {  // the state of these segments, at label `version`; -> CheckpointWritten
  EpochId epoch;
  Version version = 0;
  StepRecord record;  // of step version-1
  std::vector<SegmentId> segments;
};
struct Exit {
  int code = 0;
  bool fenced = false;  // the guard starts a new life
  std::string reason;
  std::optional<Ended> end;  // set when the job is over
  bool trained = false;      // the working parameters here are those of the job's last version
  bool leaving = false;      // it had announced its leave
};
}  // namespace worker_command

using WorkerCommand =
    std::variant<worker_command::ToCoordinators, worker_command::Initialise, worker_command::Hold,
                 worker_command::Connect, worker_command::SetVersion, worker_command::SayReady,
                 worker_command::Leave, worker_command::Stop, worker_command::Compute,
                 worker_command::Compare, worker_command::OpenStep, worker_command::StartReduce,
                 worker_command::SendMove, worker_command::EndShare, worker_command::ComputeNorm,
                 worker_command::SendVote, worker_command::Apply, worker_command::ClearAccumulators,
                 worker_command::DropTotals, worker_command::StartGather,
                 worker_command::ComputeDigest, worker_command::WriteCheckpoint,
                 worker_command::Exit, worker_command::Evaluate>;

using WorkerCommands = std::vector<WorkerCommand>;

}  // namespace starling::elastic
