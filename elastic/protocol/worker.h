#pragma once
// The worker's side of the protocol (docs/design.md, sections 5 and 6): joining, running epochs
// step by step, stopping, reporting, switching, leaving. Pure: events in, commands out.
//
// Read the rules first; each is named where it is enforced. What the commands move and compute is
// done by the actor (production) or by the simulated world, which answer with events.
//
// Threads: none; a value that belongs to whoever calls on().

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "core/wire/messages.h"
#include "elastic/protocol/bugs.h"
#include "elastic/protocol/checkpoint_turn.h"
#include "elastic/protocol/epoch_run.h"
#include "elastic/protocol/joining.h"
#include "elastic/protocol/shares.h"
#include "elastic/protocol/step_work.h"
#include "elastic/protocol/stopping.h"
#include "elastic/protocol/untold.h"

namespace starling::elastic {

struct WorkerConfig {
  std::uint32_t micro_batches = 0;  // M
  std::uint64_t steps = 0;          // the job's last version
  std::uint32_t segments = 0;
  // Votes for steps that are multiples of it carry digests; 0: none does.
  std::uint64_t digest_every = 0;
  std::uint64_t checkpoint_every = 0;  // versions that are multiples of it are written; 0: none is
  bool stop_on_nonfinite = false;      // no step follows one that is skipped
  LossScaleRule loss_scale;
  std::uint64_t heartbeat_ms = 100;
  std::uint64_t retry_ms = 100;  // joins, reports, steps and the end are said again until answered
  std::uint64_t coordinator_timeout_ms = 30000;
  // Most that the end of a life waits for coordinators to note the steps that it knows.
  std::uint64_t last_words_ms = 2000;
  std::uint32_t probe_after = 32;  // see Speedometer
  Bugs bugs;
};

// Per segment, the ranks that hold it in one step, owner first.
using Holders = std::shared_ptr<const std::vector<std::vector<Rank>>>;

// ---- Events -----------------------------------------------------------------------------------
namespace worker_event {
struct Start {  // the process is up; `join` is what it says of itself
  Join join;
};
struct Tick {
  std::uint64_t now_ms = 0;
};
// What the threads that work for this worker have still to do, and a number that grows with
// everything that they have done.
struct Working {
  std::uint32_t orders_left = 0;
  std::uint64_t progress = 0;
};
struct Failed {  // what was ordered cannot be done here: this life is over
  int code = 0;
  std::string reason;
};
struct Received {  // from a coordinator
  Message body;
};
struct DataHashed {  // all data files have been read here
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
  Rank peer = 0;  // kNoRank: none did; what they carry cannot be, or the direct path failed
  LinkFault fault = LinkFault::kEnded;
};
struct Stopped {  // answer to Stop: nothing is sent or received in this epoch any more
  EpochId epoch;
};
struct PeerReady {  // a joiner said ready over a connection of this epoch
  EpochId epoch;
  Rank from = 0;
};
// An attempt to make the epoch's direct path is ready here: votes may name it (R17). Attempts count
// from 1 in each epoch; one beyond limits::kAttempts is never named.
struct PathReady {
  EpochId epoch;
  std::uint32_t attempt = 0;
};
struct PathLost {  // that one is of no use any more: no later vote names it
  EpochId epoch;
  std::uint32_t attempt = 0;
};
struct PathTold {  // at rank 0, for people: which way the epoch's bytes go, and why
  EpochId epoch;
  bool direct = false;
  std::string why;
};
struct MicroBatchDone {  // sums, side list, lanes and ledger row have it
  Version version = 0;
  LedgerRow row;
  std::uint64_t took_ns = 0;  // of one compute thread, divided by their number; 0: not to be told
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
struct LedgerArrived {
  EpochId epoch;
  Rank from = 0;
  Version version = 0;
  std::vector<LedgerRow> rows;
};
struct VoteArrived {
  EpochId epoch;
  Rank from = 0;
  Vote vote;
};
struct GatherBegun {  // the first gather frame of this epoch arrived (a joiner enters)
  EpochId epoch;
  Version version = 0;
  StepRecord record;  // of step version-1
};
struct Gathered {  // working parameters and exponents of `version` are complete
  EpochId epoch;
  Version version = 0;
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
                 worker_event::PeerReady, worker_event::PathReady, worker_event::PathLost,
                 worker_event::PathTold, worker_event::MicroBatchDone, worker_event::Reduced,
                 worker_event::MovedIn, worker_event::LedgerArrived, worker_event::VoteArrived,
                 worker_event::GatherBegun, worker_event::Gathered, worker_event::StepTimed,
                 worker_event::DigestReady>;

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
  // The version whose frames are current (frames of version+1 wait); kNoVersion: everything waits,
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
};
// Frames of the current version that arrive before the command that wants them (OpenStep,
// StartGather) wait for it.
//
// `direct`, alike in all commands of a step: the attempt whose path takes its bytes; 0: the epoch's
// connections do (R17).
struct OpenStep {  // contributions and totals of this step may arrive from now on
  EpochId epoch;
  Version version = 0;
  Holders holders;
  std::uint32_t direct = 0;
};
// What a vote says of owned segments: the exact sum of squares over their totals and, if it is
// wanted, the digest of their state, which is at the step's label.
struct Measure {
  std::vector<SegmentId> segments;
  bool digest = false;
};
// Goes out with Compute. The sums of a bucket leave as soon as each of the micro-batches of the
// share, as many as this, has been added to all of it; what is there already, at once. -> Reduced
struct StartReduce {
  EpochId epoch;
  Version version = 0;
  std::uint32_t micro_batches = 0;
  Measure owned;
  std::uint32_t direct = 0;
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
  StepRecord record;  // of step record.version
};
struct ClearAccumulators {};  // only after the vote passed (R7)
struct DropTotals {};
// Publish the held segments, send parameters of owned ones to those without a copy, receive what is
// not held; -> Gathered. Passes may read what is there at this version already: that is never
// written again.
struct StartGather {
  EpochId epoch;
  Version version = 0;
  StepRecord record;
  Holders holders;  // those with copies of this version
  std::uint32_t direct = 0;
};
struct ComputeDigest {  // over these segments; -> DigestReady
  EpochId epoch;
  Version version = 0;
  std::vector<SegmentId> segments;
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

using WorkerCommand = std::variant<
    worker_command::ToCoordinators, worker_command::Initialise, worker_command::Hold,
    worker_command::Connect, worker_command::SetVersion, worker_command::SayReady,
    worker_command::Leave, worker_command::Stop, worker_command::Compute, worker_command::OpenStep,
    worker_command::StartReduce, worker_command::SendMove, worker_command::EndShare,
    worker_command::ComputeNorm, worker_command::SendVote, worker_command::Apply,
    worker_command::ClearAccumulators, worker_command::DropTotals, worker_command::StartGather,
    worker_command::ComputeDigest, worker_command::WriteCheckpoint, worker_command::Exit>;

using WorkerCommands = std::vector<WorkerCommand>;

class Worker {
 public:
  explicit Worker(WorkerConfig config);

  WorkerCommands on(const WorkerEvent& event);

  // For people and for the simulator's checks.
  Version version() const { return version_; }
  EpochId entered() const { return entered_; }
  bool pending() const { return pending_; }
  const std::vector<bool>& copies() const { return copies_; }
  bool gone() const { return gone_; }
  const std::optional<EpochRun>& run() const { return run_; }
  std::uint32_t world() const { return run_ ? run_->world() : 0; }
  // What coordinators are to hear of this worker now.
  Heartbeat heartbeat() const;

 private:
  void on_event(const worker_event::Start& e);
  void on_event(const worker_event::Tick& e);
  void on_event(const worker_event::Working& e) { working_ = e; }
  void on_event(const worker_event::Failed& e) { exit(e.code, e.reason); }
  void on_event(const worker_event::Received& e);
  void on_event(const worker_event::NoticeGiven& e);
  void on_event(const worker_event::DataHashed& e) { data_ = e.data; }
  void on_event(const worker_event::Initialised& e);
  void on_event(const worker_event::Loading& e);
  void on_event(const worker_event::NotInitialised& e);
  void on_event(const worker_event::CheckpointWritten& e);
  void on_event(const worker_event::Connected& e);
  void on_event(const worker_event::Broken& e);
  void on_event(const worker_event::Stopped& e);
  void on_event(const worker_event::PeerReady& e);
  void on_event(const worker_event::PathReady& e);
  void on_event(const worker_event::PathLost& e);
  void on_event(const worker_event::PathTold& e);
  void on_event(const worker_event::MicroBatchDone& e);
  void on_event(const worker_event::Reduced& e);
  void on_event(const worker_event::MovedIn& e);
  void on_event(const worker_event::LedgerArrived& e);
  void on_event(const worker_event::VoteArrived& e);
  void on_event(const worker_event::GatherBegun& e);
  void on_event(const worker_event::Gathered& e);
  void on_event(const worker_event::StepTimed& e);
  void on_event(const worker_event::DigestReady& e);

  void on_message(const Welcome& m);
  void on_message(const Refused& m);
  void on_message(const Freeze& m);
  void on_message(const Committed& m);
  void on_message(const Fenced& m);
  void on_message(const Released& m);
  void on_message(const Ended& m);
  void on_message(const Noted& m);
  void on_message(const CheckpointAsked& m);
  void on_message(const LeaderHint&) {}  // somebody was heard; its note is shown by the actor
  template <SaidByWorkers Other>
  void on_message(const Other&) {}
  template <SaidAmongCoordinators Other>
  void on_message(const Other&) {}

  // Plans.
  void prepare(std::shared_ptr<const Plan> plan, Rank self);
  void enter(std::shared_ptr<const Plan> plan, Rank self);
  bool take_over(const Plan& plan, Rank self);  // pending, shares and copies at an epoch's start
  bool keep_held(const Plan& plan, Rank self);
  void drop_early_copies();
  void begin_if_ready();
  bool switch_epochs();  // false if this worker is left out
  EpochId ready_for() const;

  // A step.
  void open_step(Version version);
  void send_moves();
  bool moves_to(const EpochRun& run, SegmentId segment) const;
  void compute_step();
  void finish();
  void end_share_if_done();
  worker_command::Measure what_to_measure() const;
  void vote_if_ready();
  void cast(Vote vote);
  void pass_if_complete();
  void pass(const StepRecord& record);
  StepRecord make_record() const;
  LossScale scale() const;
  bool at_the_end() const;
  void gather_and_compute();
  void write_checkpoint(const CheckpointTurn::Votes& votes);
  void say_untold(std::size_t at_once = 16);
  void say_finished();
  void say_notices();
  void leave_before_joining();
  void learn(const StepRecord& record, bool with_ledger);
  std::vector<Rank> shares_of(Version version) const;
  std::uint32_t way_of(Version version) const;

  // Stopping.
  void stop(std::vector<Incarnation> broken, LinkFault fault = LinkFault::kEnded);
  void report_if_stopped();
  void exit(int code, const std::string& reason, bool fenced = false);
  void exit(worker_command::Exit last);
  void exit_when_told(worker_command::Exit last);
  void say_last_words(const WorkerEvent& event);
  void end_if_told();

  std::uint32_t share_left() const;
  std::vector<Rank> missed() const;
  void check_invariants() const;
  void check_run(const EpochRun& run) const;
  // The ranks that get the totals of step `version`.
  Holders holders_in(const EpochRun& run, Version version) const;
  // The ranks with copies at the start of step `version`, without the targets of its moves.
  Holders copies_at(const EpochRun& run, Version version) const;
  Holders holders_with(const EpochRun& run, const std::function<bool(const Move&)>& moved) const;
  std::vector<SegmentId> owned() const;
  EpochRun* run_of(const EpochId& epoch);  // the current one, if it is that
  EpochRun* going(const EpochId& epoch);   // or the one that is to follow
  void send(Message body) { emit(worker_command::ToCoordinators{std::move(body), {}}); }
  void emit(WorkerCommand command) { commands_.push_back(std::move(command)); }

  // Most that counts of the time between two looks at the clock while something is waited for.
  static constexpr std::uint64_t kLookMs = 100;

  WorkerConfig config_;
  WorkerCommands commands_;  // of the event being handled

  Joining joining_;
  bool gone_ = false;
  // It is to end so, when the steps that it knows are noted, and has waited for that so long.
  std::optional<worker_command::Exit> last_;
  std::uint64_t last_ms_ = 0;
  std::uint64_t now_ms_ = 0;
  // Since any coordinator was heard, as far as this worker could hear.
  std::uint64_t unheard_ms_ = 0;
  std::uint64_t sent_ms_ = 0;  // last retry
  std::uint64_t heartbeat_ms_ = 0;
  std::optional<std::uint64_t> leave_until_ms_;  // the earliest that a notice named
  std::vector<Notice> unsaid_;                   // notices that coordinators have not been told of

  // The state of training here.
  Version version_ = kNoVersion;
  bool pending_ = false;    // voted for step version_, totals kept
  EpochId may_have_begun_;  // Report's
  bool parameters_complete_ = false;
  StepRecord record_;  // of step version_-1
  Untold untold_;
  std::vector<bool> copies_;  // label version_ (and its total, if pending)
  StepWork work_;             // of step version_
  Speedometer speed_;
  Digest data_{};  // zeros: not known yet
  worker_event::Working working_;

  // Epochs.
  EpochId entered_;
  std::optional<EpochRun> run_;
  std::optional<EpochRun> next_;  // a prepared plan whose connections are being made
  Stopping stopping_;             // the last epoch is over for us: only forced plans from here
  std::optional<worker_event::DigestReady> finished_;
  CheckpointTurn checkpoint_;
};

}  // namespace starling::elastic
