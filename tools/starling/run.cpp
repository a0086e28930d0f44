// `starling run` runs a whole job on this machine.

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "actors/guard/status.h"
#include "core/base/exit.h"
#include "core/formats/checkpoint.h"
#include "core/formats/checkpoint_owner.h"
#include "core/formats/storage.h"
#include "tools/processes/signals.h"
#include "tools/starling/commands.h"
#include "tools/starling/coordinators.h"
#include "tools/starling/earlier_run.h"
#include "tools/starling/exit.h"
#include "tools/starling/group.h"
#include "tools/starling/last_words.h"
#include "tools/starling/local_workers.h"
#include "tools/starling/model_file.h"
#include "tools/starling/prepared_run.h"
#include "tools/starling/resume.h"
#include "tools/starling/run_place.h"
#include "tools/starling/sinks.h"
#include "tools/starling/spectator.h"

namespace starling::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRunPoll{50};
constexpr milliseconds kSignalGrace{3000};      // after an order to end, before the rest is killed
constexpr milliseconds kEndCommitted{3000};     // for the coordinators to commit the run's end
constexpr milliseconds kLastCheckpoint{25000};  // Slurm and Kubernetes kill 30 s after SIGTERM
constexpr milliseconds kTellAgain{1000}, kEndAgain{200};
constexpr milliseconds kRunSameSignal{300};
constexpr milliseconds kEndGrace{60000};   // after the job's end: the model is being saved
constexpr milliseconds kStartFailed{500};  // a coordinator may have told the end and its reason
constexpr milliseconds kLastWord{2000};    // for coordinators, when all workers have ended
constexpr const char* kNotSaved =
    "the model is not here: the workers that were there at the last step could not save it";
constexpr const char* kElsewhere =
    "the model is not here: none of the workers started here was there at the last step; whoever "
    "was has it where its --save says";
constexpr int kNotHere =
    actors::kNotHereStatus;  // also of a worker that was left out and comes late

using GoesOn = std::monostate;

class Run {
 public:
  Run(RunOptions options, PreparedRun prepared)
      : options_(std::move(options)),
        run_(std::move(prepared)),
        sinks_(add_sinks(*run_.events)),
        spectator_(run_.job),
        children_(blocked_in_children()),
        workers_(
            children_, [this](std::uint32_t i) { return start_worker(i); }, options_.respawn) {}

  // The keys are of no use any more.
  void remove_keys() {
    std::error_code ignored;
    std::filesystem::remove_all(run_.keys(), ignored);
  }

  Result<int> go() {
    STARLING_TRY(served, serve_run(*run_.events, run_.job, sinks_.status, options_.metrics));
    metrics_ = std::move(served);
    STARLING_TRY(
        add_tensorboard(*run_.events, run_.job, options_.tensorboard, run_.checkpoints.empty()));
    CoordinatorsOptions coordinators;
    coordinators.job = run_.job;
    coordinators.layout = run_.layout;
    coordinators.ring = &run_.ring;
    coordinators.folder = run_.folder;
    coordinators.count = options_.coordinators;
    coordinators.keys = run_.keys();
    coordinators.host = options_.host;
    coordinators.port = options_.port;
    coordinators.workers = options_.workers;
    coordinators.checkpoints = run_.checkpoints;
    coordinators.log = options_.log;
    STARLING_TRY(started, options_.coordinators == 1
                              ? start_embedded(coordinators, *run_.events)
                              : start_processes(coordinators, *run_.events, children_));
    coordinators_ = std::move(started);
    const Version from = run_.checkpoints.empty() ? Version{0} : run_.checkpoints.back().version;
    event::Started start = start_of(run_.job);
    start.fingerprint = "isa " + run_.isa;
    start.data = run_.data;
    start.samples = run_.samples;
    start.chunk_samples = run_.chunk_samples;
    start.from = from;
    spectator_.begins_at(from);
    start.address = coordinators_->address();
    start.keys = run_.keys();
    STARLING_TRY(run_.events->start(std::move(start)));
    for (const std::string& remark : run_.remarks) {
      const event::Warning warning{remark};
      STARLING_TRY(run_.events->write(warning));
      spectator_.show(warning);
    }
    if (options_.resume)
      spectator_.say(
          (from == 0 ? "no checkpoint yet: begins at step 0, will write to "
                     : "goes on from the checkpoint of step " + std::to_string(from) + " in ") +
          run_.job.checkpoint.dir);
    for (const std::string& note : run_.notes) spectator_.say(note);
    if (metrics_) spectator_.say("metrics are at " + metrics_->url() + "/metrics");
    spectator_.say(std::to_string(started_here()) + (started_here() == 1 ? " worker" : " workers") +
                   " of " + std::to_string(options_.workers) +
                   " begin here; training begins when " +
                   (options_.workers == 1 ? "it has joined" : "all have joined"));
    spectator_.say("another worker joins by: " + join_command(run_.folder));
    STARLING_TRY(workers_.start(started_here()));
    STARLING_TRY(code, follow());
    return finish(code);
  }

  // Ends a run that go() could not begin: says why in the events too, and leaves no files.
  int give_up(const Error& error) {
    (void)run_.events->write(event::Failed{exit_code(error.code()), error.text()});
    say_what_is_missing();
    coordinators_.reset();
    children_.order_all(Order::kStop);
    children_.wait_all(kSignalGrace);
    children_.kill_rest();
    // Two records of one step: what the model has kept may be in all checkpoints of the job.
    if (error.code() == Code::kInternal && run_.job.checkpoint.on())
      (void)doubt_own_checkpoints(*open_storage(run_.job.checkpoint.dir),
                                  writer_of(run_.job, run_.id()), Version{0});
    return fail(error);
  }

 private:
  void say_what_is_missing() {
    if (const auto missing = run_.events->finish(); !missing.empty()) spectator_.warn(missing);
    spectator_.close();
  }

  std::uint32_t started_here() const {
    return std::min(options_.start.value_or(options_.workers), options_.workers);
  }

  Result<pid_t> start_worker(std::uint32_t i) {
    // With --port, workers' ports come after the coordinators' ports.
    const std::uint32_t port = options_.port + options_.coordinators + i;
    const bool fixed = options_.port != 0;
    const std::string place =
        fixed ? to_string(Address{options_.host, static_cast<std::uint16_t>(port)}) : options_.host;
    return children_.spawn({"worker",
                            "--quiet",
                            "--child",
                            "--join",
                            coordinators_->address(),
                            "--keys",
                            run_.keys(),
                            fixed ? "--listen" : "--host",
                            place,
                            "--threads",
                            std::to_string(options_.threads),
                            "--save",
                            run_.path(model_file_of(run_.job)),
                            "--notices",
                            options_.notices.cloud,
                            "--metadata",
                            options_.notices.metadata,
                            "--transport",
                            name_of(options_.transport),
                            "--log",
                            options_.log,
                            "--words",
                            std::to_string(Children::kMore)},
                           -1, -1, words_.fd());
  }

  // Follows the run until the job's end, a signal, or the end of all workers that could go on.
  Result<int> follow() {
    for (;;) {
      STARLING_TRY(look());
      if (over()) return code_of_end();
      if (const int signal = pending_signal()) {
        // A script whose stop was true goes on from an earlier checkpoint than the last one.
        stopped_ = signal == script_stop_signal();
        if (!stopped_) {
          STARLING_TRY(last_checkpoint());
        }
        STARLING_TRY(end_in_order(signal));
        return code_of_end();
      }
      STARLING_TRY(stuck, look_after_children(/*again=*/true));
      if (stuck) return *stuck;
      // The machine goes, and with it all workers that had the state.
      if (all_left_here()) {
        STARLING_TRY(end_in_order(SIGTERM));
        return code_of_end();
      }
    }
  }

  // Shows what happens next, and keeps the events that decide how to go on.
  Result<> look() {
    STARLING_TRY(events, coordinators_->wait(kRunPoll));
    for (const Event& event : events) {
      spectator_.show(event);
      workers_.told(event);
      if (const auto* e = std::get_if<event::StepPassed>(&event)) reached_ = e->record.version + 1;
      // A checkpoint that is published once more, with a doubt, may be older than the newest.
      if (const auto* e = std::get_if<event::CheckpointWritten>(&event))
        checkpoint_ = std::max(checkpoint_.value_or(e->version), e->version);
      if (const auto* e = std::get_if<event::Restarted>(&event)) checkpoint_ = e->version;
      if (const auto* e = std::get_if<event::Done>(&event)) take_end(*e);
      if (const auto* e = std::get_if<event::Ended>(&event)) take_end(*e);
      if (const auto* e = std::get_if<event::Failed>(&event)) take_end(*e);
    }
    return ok();
  }

  // A run has one end. Coordinators tell one; if they told a second one, the first would count.
  template <class E>
  void take_end(const E& end) {
    if (!over()) end_ = end;
  }
  bool over() const { return !std::holds_alternative<GoesOn>(end_); }
  const event::Done* done() const { return std::get_if<event::Done>(&end_); }
  const event::Ended* ended() const { return std::get_if<event::Ended>(&end_); }
  const event::Failed* failed() const { return std::get_if<event::Failed>(&end_); }

  int code_of_end() const {
    if (ended()) return kExitSignal + ended()->signal;
    return failed() ? failed()->code : 0;
  }

  // Has the coordinators commit the end before a worker dies of it.
  // Where they do not answer, the workers are told all the same.
  Result<> end_in_order(int signal) {
    const auto began = Clock::now();
    std::optional<Clock::time_point> told_at;
    spectator_.say(stopped_ ? "stop was true; ending, to go back to its step" : "ending");
    while (!over() && Clock::now() - began < kEndCommitted) {
      if (!told_at || Clock::now() - *told_at > kEndAgain) {
        coordinators_->end_run(signal);
        told_at = Clock::now();
      }
      STARLING_TRY(look());
    }
    if (over()) return ok();
    const actors::EndRun end = end_of_run(signal);
    take_end(event::Ended{end.signal, reached_, newest_checkpoint(), end.reason});
    STARLING_TRY(run_.events->write(*ended()));
    children_.order_all(Order::kStop);
    return ok();
  }

  std::optional<Version> newest_checkpoint() const {
    if (checkpoint_ || run_.checkpoints.empty()) return checkpoint_;
    return run_.checkpoints.back().version;
  }

  bool all_left_here() const {
    return workers_.all_members_left() && alone_at_ && Clock::now() - *alone_at_ > kLastWord;
  }

  // Saves what was trained since the newest checkpoint before a signal ends the run.
  // Waits no longer than the sender of the signal does; a second one ends it at once.
  Result<> last_checkpoint() {
    if (!run_.job.checkpoint.on() || !spectator_.epoch_seen()) return ok();
    spectator_.say("writing a last checkpoint; a second signal ends the run at once");
    hurry_storage();
    // A store that is away says nothing of others.
    if (auto ours = ours_still(); !ours && ours.error().code() == Code::kStale) {
      spectator_.warn(ours.error().text());
      return ok();
    }
    const auto asked_at = Clock::now();
    const std::optional<Version> before = checkpoint_;
    std::optional<Clock::time_point> told_at;
    while (Clock::now() - asked_at < kLastCheckpoint && !workers_.none()) {
      if (!told_at || Clock::now() - *told_at > kTellAgain) {
        coordinators_->ask_checkpoint();
        told_at = Clock::now();
      }
      STARLING_TRY(look());
      if (over() || checkpoint_ != before) return ok();
      // The same signal may come twice, to the process and to its group.
      if (pending_signal() != 0 && Clock::now() - asked_at > kRunSameSignal) return ok();
      STARLING_TRY(stuck, look_after_children(/*again=*/false));
      if (stuck) return ok();
    }
    spectator_.say("the last checkpoint was not complete in time");
    return ok();
  }

  // Errors: kStale  a newer run of the job has the checkpoint folder.
  Result<> ours_still() const {
    return still_of_run(*open_storage(run_.job.checkpoint.dir), run_.id());
  }

  // Warns if another process has removed the checkpoint.
  void say_if_gone() {
    if (!checkpoint_) return;
    const std::string folder = checkpoint_folder(run_.job.checkpoint.dir, *checkpoint_);
    const auto there = list_checkpoints(*open_storage(run_.job.checkpoint.dir));
    if (there &&
        std::find(there.value().begin(), there.value().end(), *checkpoint_) == there.value().end())
      spectator_.warn("the checkpoint of step " + std::to_string(*checkpoint_) + " is gone; " +
                      folder);
  }

  // Says how to go on after a signal, or what is lost with it.
  void say_how_to_go_on() {
    if (!run_.job.checkpoint.on())
      return spectator_.say(
          kind_of(run_.job.model).is_script
              ? "ended; nothing of it is kept, as the script names no checkpoint="
              : "ended; nothing of it is kept, as the job file has no [checkpoint]");
    const auto still = ours_still();
    const bool ours = still || still.error().code() != Code::kStale;
    if (!ours && !newer_run_is_idle(*open_storage(run_.job.checkpoint.dir), run_.id()))
      return spectator_.say("ended; a newer run of this job has gone on in the checkpoint folder");
    const std::string ended = ours ? "ended"
                                   : "ended; a newer run of this job has the checkpoint folder and "
                                     "has written none there";
    if (!newest_checkpoint())
      return spectator_.say(
          ours ? "ended before there was a checkpoint: the same command begins anew" : ended);
    say_if_gone();
    spectator_.say(ended + "; this goes on from the checkpoint of step " +
                   std::to_string(*newest_checkpoint()) +
                   (kind_of(run_.job.model).is_script
                        ? ", with the environment variables that the script reads:"
                        : ":"));
    spectator_.say("  " + options_.again);
  }

  // Returns the exit code if the job cannot begin or go on: all workers have ended by
  // themselves and no end is told. (Workers that were killed are the coordinators' business.)
  // `again`: a worker that has died is followed by another one, once the run has begun.
  Result<std::optional<int>> look_after_children(bool again) {
    for (const ChildEnd& child : children_.reap()) {
      STARLING_TRY(coordinator, coordinators_->child_ended(child.pid));
      if (coordinator) continue;
      const auto status = workers_.ended(child, again && spectator_.epoch_seen());
      if (!status) continue;
      if (*status == kExitBadInput && !spectator_.epoch_seen())
        return std::optional<int>(kExitBadInput);
      if (*status < kExitSignal) last_status_ = std::max(last_status_, *status);
      // The worker has said why; none comes in its place, so the first epoch never begins.
      if (*status == kExitAlone && !spectator_.epoch_seen() && !failed_at_)
        failed_at_ = Clock::now();
      if (workers_.none()) alone_at_ = Clock::now();
    }
    if (again) {
      STARLING_TRY(workers_.start_due());
    }
    if (const auto news = workers_.news()) spectator_.warn(*news);
    if (failed_at_ && !spectator_.epoch_seen() && Clock::now() - *failed_at_ > kStartFailed)
      return std::optional<int>(kExitAlone);
    const bool over = alone_at_ && Clock::now() - *alone_at_ > kLastWord;
    if (over && last_status_ > 0) return std::optional<int>(last_status_);
    return std::optional<int>();
  }

  // Tells the failure when no worker is left and the coordinators have told no end.
  void tell_failed(int code) {
    std::string why = words_.last_with(code);
    if (why.empty()) why = "the last one ended with exit code " + std::to_string(code);
    const std::string all = spectator_.epoch_seen()
                                ? "every worker that was started here has ended: "
                                : "no worker could begin: ";
    (void)run_.events->write(event::Failed{code, all + why});
  }

  int finish(int code) {
    if (!over()) tell_failed(code);
    if (!over()) children_.order_all(Order::kStop);
    const bool others_go_on = started_here() < options_.workers || workers_.size() == 0 ||
                              spectator_.world() > started_here();
    int worst = wait_for_workers(done() || failed() ? kEndGrace : kSignalGrace);
    if (over()) linger(others_go_on);
    spectator_.close();
    coordinators_.reset();
    say_what_is_missing();
    children_.order_all(Order::kStop);  // coordinator processes
    // A coordinator may still say in manifests what is in doubt.
    children_.wait_all(run_.job.checkpoint.on() ? kLastCheckpoint : kSignalGrace);
    if (const auto killed = children_.kill_rest(); killed > 0)
      fail(kExitInternal, std::to_string(killed) + " processes did not end and were killed");
    if (const auto curve = sinks_.curve.save(run_.path("loss.svg"), run_.job.name); !curve)
      worst = fail(curve.error());
    // These are of a checkpoint that was under way; no process writes any more.
    if (run_.job.checkpoint.on())
      remove_own_checkpoints(*open_storage(run_.job.checkpoint.dir), writer_of(run_.job, run_.id()),
                             kNoVersion,
                             /*kept=*/{});
    if (const std::string sums = sinks_.status.now().sums(unix_time()); !sums.empty())
      spectator_.say(sums);
    if (ended() && !stopped_) say_how_to_go_on();
    if (ended() || !over()) return code;
    if (failed()) {
      if (failed()->code == kExitStateLost && newest_checkpoint()) say_how_to_go_on();
      return fail(failed()->code, failed()->reason);
    }
    say_if_gone();
    spectator_.say(done_text(*done()));
    if (const std::string doubt = spectator_.doubt(); !doubt.empty()) spectator_.warn(doubt);
    const std::string diverged = spectator_.diverged();
    if (worst != 0) return worst;
    // Members at the end have saved it. None of those may have been started here.
    if (started_here() > 0 && !std::filesystem::exists(run_.path(model_file_of(run_.job))))
      return fail(kNotHere, not_saved_ ? kNotSaved : kElsewhere);
    return diverged.empty() ? 0 : fail(kExitRefuted, diverged);
  }

  // Keeps the coordinators up: workers that others have started still hear
  // of the end, also those that load what they need and have not joined.
  void linger(bool others_go_on) {
    const auto until = Clock::now() + kLastWord;
    while (Clock::now() < until && pending_signal() == 0 && (others_go_on || keys_in_use()))
      if (auto seen = coordinators_->wait(kRunPoll); !seen) return;
  }

  bool keys_in_use() const {
    const auto pairs = run_.ring.numbered("worker");
    return std::any_of(pairs.begin(), pairs.end(), [this](const KeyPair& pair) {
      return !TakenKey::take(run_.keys(), pair.name);
    });
  }

  // Waits while workers save the model and go. Returns a failed one's status after a
  // good end, else 0; a worker that was no member at the last step does not count.
  int wait_for_workers(milliseconds grace) {
    const auto deadline = Clock::now() + grace;
    int worst = 0;
    while (workers_.size() > 0 && Clock::now() < deadline) {
      auto seen = coordinators_->wait(milliseconds(10));
      for (const ChildEnd& child : children_.reap()) {
        const bool member = workers_.is_member(child.pid);
        const int status = workers_.ended(child, /*again=*/false).value_or(0);
        if (!member || status >= kExitSignal) continue;
        not_saved_ = not_saved_ || status == kNotHere;
        if (status != kNotHere) worst = std::max(worst, status);
      }
      if (pending_signal() != 0) break;
    }
    return worst;
  }

  const RunOptions options_;
  PreparedRun run_;
  const SinksThere sinks_;
  std::unique_ptr<PageServer> metrics_;  // null: none are asked for
  Spectator spectator_;
  Children children_;  // before its users: it outlives them
  std::unique_ptr<Coordinators> coordinators_;
  LastWords words_;
  LocalWorkers workers_;
  std::variant<GoesOn, event::Done, event::Ended, event::Failed> end_;
  std::optional<Version> checkpoint_;  // the newest that this run has completed
  Version reached_ = 0;
  bool stopped_ = false;    // ended by the script that began this run, which goes on with it
  bool not_saved_ = false;  // a member at the last step has no model
  int last_status_ = 0;     // the worst of workers that ended by themselves
  std::optional<Clock::time_point> failed_at_;  // when one of ours could not begin
  std::optional<Clock::time_point> alone_at_;   // since when no worker of ours is left
};

}  // namespace

int run(RunOptions options) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a full file size limit becomes a write error, as a full disk
  block_ending_signals();      // pending_signal() takes them between events
  auto host = host_of(options.host);
  if (!host) return fail(host.error());
  options.host = std::move(host).value();
  auto prepared = prepare_run(options);
  if (!prepared) return fail(prepared.error());
  if (const auto& done = prepared.value().finished)
    return tell_finished(*done, prepared.value().folder);
  Run whole(std::move(options), std::move(prepared).value());
  auto code = whole.go();
  whole.remove_keys();
  return code ? code.value() : whole.give_up(code.error());
}

}  // namespace starling::tools
