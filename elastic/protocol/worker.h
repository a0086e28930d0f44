#pragma once
// Worker is the worker's side of the protocol (docs/design.md, sections 5 and 6): joining, running
// epochs step by step, stopping, reporting, switching, leaving. Pure: events in, commands out.
//
// Read the rules first; each is named where it is enforced. Events and commands: worker_io.h.
//
// Threads: none; a value that belongs to the caller of on().

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/job/sections.h"
#include "core/wire/messages.h"
#include "elastic/protocol/bugs.h"
#include "elastic/protocol/checkpoint_turn.h"
#include "elastic/protocol/epoch_run.h"
#include "elastic/protocol/joining.h"
#include "elastic/protocol/rechecks.h"
#include "elastic/protocol/shares.h"
#include "elastic/protocol/step_work.h"
#include "elastic/protocol/stopping.h"
#include "elastic/protocol/unacknowledged_steps.h"
#include "elastic/protocol/worker_io.h"

namespace starling::elastic {

struct WorkerConfig {
  ElasticSpec elastic;
  CheckpointSpec checkpoint;
  std::uint32_t micro_batches = 0;  // M
  std::uint64_t steps = 0;          // the job's last version
  std::uint32_t segments = 0;
  bool stop_on_nonfinite = false;      // no step follows one that is skipped
  bool evaluates = false;              // the last version is evaluated before the end
  std::uint32_t evaluation_width = 1;  // numbers of each held-out batch in a ledger row
  LossScaleRule loss_scale;
  RecheckRule recheck;  // its share is elastic.recheck
  std::uint64_t heartbeat_ms = 100;
  std::uint64_t retry_ms = 100;  // joins, reports, steps and the end are said again until answered
  // The longest that an ending life waits for coordinators to note the steps that it knows.
  std::uint64_t last_words_ms = 2000;
  // The longest that a worker waits at the end for its data to be read, so that they are compared.
  std::uint64_t data_wait_ms = 0;
  std::uint32_t probe_after = 32;  // see Speedometer
  Bugs bugs;
};

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
  // All steps are made, and the end waits for the data to be read.
  bool waits_for_data() const { return finished_ && data_ == Digest{}; }
  const std::optional<EpochRun>& run() const { return run_; }
  std::uint32_t world() const { return run_ ? run_->world() : 0; }
  // The heartbeat that coordinators are to get from this worker now.
  Heartbeat heartbeat() const;
  void note_differences(const std::vector<Difference>& found);

 private:
  void on_event(const worker_event::Start& e);
  void on_event(const worker_event::Tick& e);
  void on_event(const worker_event::Working& e) { working_ = e; }
  void on_event(const worker_event::Failed& e) { exit(e.code, e.reason); }
  void on_event(const worker_event::Received& e);
  void on_event(const worker_event::NoticeGiven& e);
  void on_event(const worker_event::DataHashed& e);
  void on_event(const worker_event::Initialised& e);
  void on_event(const worker_event::Loading& e);
  void on_event(const worker_event::NotInitialised& e);
  void on_event(const worker_event::CheckpointWritten& e);
  void on_event(const worker_event::Connected& e);
  void on_event(const worker_event::Broken& e);
  void on_event(const worker_event::Stopped& e);
  void on_event(const worker_event::PeerReady& e);
  void on_event(const worker_event::TransportReady& e);
  void on_event(const worker_event::TransportLost& e);
  void on_event(const worker_event::TransportChosen& e);
  void on_event(const worker_event::MicroBatchDone& e);
  void on_event(const worker_event::Rechecked& e);
  void on_event(const worker_event::Compared& e);
  void on_event(const worker_event::Reduced& e);
  void on_event(const worker_event::MovedIn& e);
  void on_event(const worker_event::LedgerArrived& e);
  void on_event(const worker_event::VoteArrived& e);
  void on_event(const worker_event::GatherBegun& e);
  void on_event(const worker_event::Gathered& e);
  void on_event(const worker_event::StepTimed& e);
  void on_event(const worker_event::DigestReady& e);
  void on_event(const worker_event::Evaluated& e);

  void on_message(const Welcome& m);
  void on_message(const Refused& m);
  void on_message(const Freeze& m);
  void on_message(const Committed& m);
  void on_message(const Fenced& m);
  void on_message(const Released& m);
  void on_message(const Ended& m);
  void on_message(const Noted& m);
  void on_message(const CheckpointAsked& m);
  void on_message(const LeaderHint&) {}  // a coordinator was heard; the actor shows its note
  void on_message(const Seats&) {}       // the actor dials them
  void on_message(const ChangeAnswered&) {}
  void on_message(const AdminAnswered&) {}
  void on_message(const Enrolled&) {}  // the gateway takes it
  template <SaidByWorkers Other>
  void on_message(const Other&) {}
  template <SaidAmongCoordinators Other>
  void on_message(const Other&) {}
  template <SaidByAdmins Other>
  void on_message(const Other&) {}

  // Plans.
  void prepare(std::shared_ptr<const Plan> plan, Rank self);
  void enter(std::shared_ptr<const Plan> plan, Rank self);
  double peak_rate(Version step) const {  // R19; 0: the job's
    return changed_rate(run_->plan->rates, step);
  }
  Progress progress_of(const EpochId& epoch, const StepRecord& record) const {
    return {epoch, record, run_->world(), {}, 0, {}, false, peak_rate(record.version)};
  }
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
  std::vector<MicroBatch> due_rechecks();
  bool rechecked();
  void cast(Vote vote);
  void pass_if_complete();
  void pass(const StepRecord& record);
  StepRecord make_record() const;
  LossScale scale() const;
  bool at_the_end() const;
  bool evaluates(const EpochRun& run) const;
  void gather_and_compute();
  void write_checkpoint(const CheckpointTurn::Votes& votes);
  void send_unacknowledged(std::size_t at_once = 16);
  void say_finished();
  void say_notices();
  void leave_before_joining();
  void learn(const StepRecord& record, bool with_ledger);
  std::vector<Rank> shares_of(Version version) const;
  std::uint32_t attempt_of(Version version) const;

  // Stopping.
  void stop(std::vector<Incarnation> broken, LinkFault fault = LinkFault::kEnded);
  void report_if_stopped();
  void exit(int code, const std::string& reason, bool fenced = false);
  void exit(worker_command::Exit last);
  void exit_when_acknowledged(worker_command::Exit last);
  void say_last_words(const WorkerEvent& event);
  void end_if_acknowledged();

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

  // The most that a time between two looks at the clock counts while something is waited for.
  static constexpr std::uint64_t kLookMs = 100;

  WorkerConfig config_;
  WorkerCommands commands_;  // of the event being handled

  Joining joining_;
  bool gone_ = false;
  // How the worker ends once the steps that it knows are noted; last_ms_: its wait for that.
  std::optional<worker_command::Exit> last_;
  std::uint64_t last_ms_ = 0;
  std::uint64_t now_ms_ = 0;
  // How long no coordinator was heard, as far as this worker could hear.
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
  UnacknowledgedSteps unacknowledged_;
  std::vector<bool> copies_;  // label version_ (and its total, if pending)
  StepWork work_;             // of step version_
  Rechecks rechecks_;         // of step version_
  // In how many steps this life had a share.
  std::uint64_t computed_ = 0;
  bool comparing_ = false;
  std::vector<Difference> differences_;  // that are known here, the newest last
  Speedometer speed_;
  Digest data_{};  // zeros: not known yet
  std::uint64_t finished_ms_ = 0;
  worker_event::Working working_;

  // Epochs.
  EpochId entered_;
  std::optional<EpochRun> run_;
  std::optional<EpochRun> next_;  // a prepared plan whose connections are being made
  Stopping stopping_;             // the last epoch is over for us: only forced plans from here
  std::optional<worker_event::DigestReady> finished_;
  std::optional<worker_event::Evaluated> evaluated_;  // of the last version, asked for or here
  CheckpointTurn checkpoint_;
};

}  // namespace starling::elastic
