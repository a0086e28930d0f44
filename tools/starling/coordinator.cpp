// `starling coordinator` is one member of the Raft group as a process of its own.

#include "actors/coordinator/coordinator.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <caf/all.hpp>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "actors/inbox.h"
#include "actors/make_model.h"
#include "actors/system.h"
#include "core/base/exit.h"
#include "core/formats/job_file.h"
#include "core/observe/anomalies.h"
#include "core/observe/line_format.h"
#include "tools/processes/signals.h"
#include "tools/starling/commands.h"
#include "tools/starling/coordinators.h"
#include "tools/starling/earlier_run.h"
#include "tools/starling/exit.h"
#include "tools/starling/farewell.h"
#include "tools/starling/group.h"
#include "tools/starling/key_watch.h"
#include "tools/starling/resume.h"
#include "tools/starling/sinks.h"
#include "tools/starling/spectator.h"
#include "tools/starling/watchdog.h"

namespace starling::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kCoordinatorPoll{50};
constexpr milliseconds kHandOver{1000};     // at most
constexpr std::chrono::seconds kLinger{5};  // after the job's end: late workers still hear of it

// Returns the addresses of all coordinators, as others reach them.
std::string addresses_of(const CoordinatorCommand& command) {
  if (!command.peers.empty()) return command.peers;
  const auto listens = parse_address(command.listen);
  return listens ? address_to_tell(listens.value()) : command.listen;
}

// Returns the name of the keys' owner, where the command does not say it.
Result<std::string> own_name(const CoordinatorCommand& command) {
  if (!command.name.empty()) return command.name;
  STARLING_TRY(ring, KeyRing::load(command.keys));
  std::string name;
  for (const KeyPair& pair : ring.numbered("coordinator")) {
    if (pair.secret_key.empty()) continue;
    if (!name.empty())
      return Error(Code::kBadInput, "the secrets of " + name + " and " + pair.name + " are in " +
                                        command.keys + "; --name says which one this is");
    name = pair.name;
  }
  if (name.empty())
    return Error(Code::kBadInput, "no secret key of a coordinator is in " + command.keys);
  return name;
}

// Sets how one that does not begin the group takes part in it.
Result<> join_group(const CoordinatorCommand& command, actors::CoordinatorOptions& options) {
  const bool founder = options.self < options.founders;
  if (founder != !command.joins)
    return Error(
        Code::kBadInput,
        founder ? command.name + " is one of the " + std::to_string(options.founders) +
                      " that begin the group, and is started without --add; a spare has a "
                      "key of its own (starling keys --spares)"
                : command.name + " is a spare: with --add it takes part in a group that has begun");
  if (founder) return ok();
  STARLING_TRY(listens, parse_address(command.listen));
  if (means_everywhere(listens.host))
    return Error(Code::kBadInput, "--listen must be an address at which others reach " +
                                      command.name + ", is " + command.listen);
  actors::CoordinatorOptions::Joins joins{listens.host, {}};
  for (std::uint32_t i = 0; !command.replace.empty() && i < options.group.size(); ++i)
    if (options.group[i].name == command.replace) joins.replaces = i;
  if (!command.replace.empty() && (!joins.replaces || joins.replaces == options.self))
    return Error(
        Code::kBadInput,
        "--replace expects the name of another coordinator of the keys, is " + command.replace);
  options.joins = std::move(joins);
  return ok();
}

Result<actors::CoordinatorOptions> options_of(const CoordinatorCommand& command) {
  actors::CoordinatorOptions options;
  STARLING_TRY(job, load_job(command.job));
  options.job = std::move(job);
  STARLING_TRY(model, actors::make_model(options.job));
  options.layout = std::make_shared<const Layout>(model->tensors());
  if (command.resume) {
    STARLING_TRY(checkpoints, checkpoints_to_resume(options.job, *options.layout));
    options.checkpoints = std::move(checkpoints);
  }
  // A coordinator that comes back does not wait for storage that may not answer.
  if (command.first || command.resume) {
    STARLING_TRY(check_folder(options.job));
  }
  STARLING_TRY(ring, KeyRing::load_for(command.keys, command.name));
  STARLING_TRY(group, coordinators_at(ring, addresses_of(command)));
  options.group = std::move(group);
  const KeyPair* key = ring.find(command.name);
  while (options.self < options.group.size() && options.group[options.self].name != command.name)
    ++options.self;
  if (!key || key->secret_key.empty() || options.self == options.group.size())
    return Error(Code::kBadInput,
                 command.keys + " has no secret key of a coordinator named " + command.name);
  options.key = *key;
  write_lines_as(line_format(), key->name);
  options.founders = static_cast<std::uint32_t>(ring.founders());
  STARLING_TRY(join_group(command, options));
  STARLING_TRY(address, address_to_listen(command.listen));
  options.address = std::move(address);
  options.job_id = job_id_of(ring);
  options.allowed = ring.allow_list();
  if (!command.identity_ca.empty() && !options.job.identity.on())
    return Error(Code::kBadInput, "--identity-ca is wanted by a job with [identity], which " +
                                      command.job + " has not");
  options.identity_ca = command.identity_ca;
  options.state_dir = command.state;
  options.first_start = command.first;
  options.wanted_workers = command.workers;
  STARLING_TRY(level, log_level(command.log));
  options.log = level;
  return options;
}

std::string events_path(const CoordinatorCommand& command) {
  const std::filesystem::path folder = command.out.empty() ? command.state : command.out;
  return (folder / "events.jsonl").string();
}

// Opens the file of events, which remembers what was told before the process began again, as `earlier` does,
// which gets it: the same command line goes on with the same folders, and ends as one process would.
Result<std::unique_ptr<EventWriter>> open_events(const CoordinatorCommand& command, const Job& job,
                                                 const std::function<void(const Event&)>& earlier) {
  if (command.child) return EventWriter::into(::dup(STDOUT_FILENO));
  return EventWriter::open(command.out.empty() ? command.state : command.out,
                           EventWriter::Owner{job_hash(job), job.name, command.name}, earlier);
}

// Returns the signals to heed: a child of `run` ends by its orders alone; the rest stay blocked.
sigset_t heeded_signals(const CoordinatorCommand& command) {
  if (!command.child) return ending_signals();
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, order_signal());
  return set;
}

using Inbox = actors::ThreadInbox<actors::Observed, actors::CoordinatorOver>;

// A Follower writes and shows its coordinator's events, until a signal or, unless
// it is a child, some time after the job's end. Threads: belongs to one thread.
class Follower {
 public:
  // `spectator` has none in a child, which shows nothing, and `sinks` is null then. `manager` is borrowed. `anomalies`,
  // `farewell`: have had the events of an earlier process.
  Follower(const CoordinatorCommand& command, const Job& job, EventWriter& events,
           std::optional<Spectator>& spectator, const SinksThere* sinks, Anomalies anomalies,
           Farewell farewell, ServiceManager& manager)
      : command_(command),
        job_(job),
        events_(events),
        spectator_(spectator),
        sinks_(sinks),
        anomalies_(std::move(anomalies)),
        farewell_(std::move(farewell)),
        manager_(manager) {}

  void say(const std::string& text) {
    if (spectator_) spectator_->say(text);
  }
  void show_warning(const std::string& text) {
    if (spectator_) spectator_->warn(text);
  }

  Result<int> follow(Inbox& inbox, const caf::actor& coordinator, KeyWatch& keys) {
    const sigset_t set = heeded_signals(command_);
    for (;;) {
      const auto word = inbox.take(kCoordinatorPoll);
      if (const auto* seen = word ? std::get_if<actors::Observed>(&*word) : nullptr) {
        STARLING_TRY(take(*seen));
      } else if (const auto* over = word ? std::get_if<actors::CoordinatorOver>(&*word) : nullptr) {
        STARLING_TRY(take_over(*over));
      }
      if (command_.child && events_.closed()) return code_;  // the `run` that read them has ended
      if (held_ && Clock::now() - held_at_ > kLastSteps) {
        STARLING_TRY(take_end());
      }
      if (auto list = keys.changed()) {
        if (*list) {
          caf::anon_send(coordinator, actors::KeysChanged{std::move(*list).value()});
        } else {
          STARLING_TRY(warn(list->error().text()));
        }
      }
      if (const auto news = events_.news()) show_warning(*news);
      const timespec now{};
      siginfo_t info{};
      const int signal = ::sigtimedwait(&set, &info, &now);
      const Ordered ordered = order_of(info);
      if (signal == order_signal() && ordered.order == Order::kAskCheckpoint)
        caf::anon_send(coordinator, actors::ask_checkpoint_atom_v);
      else if (signal == order_signal() && ordered.order == Order::kEndRun)
        caf::anon_send(coordinator, end_of_run(ordered.value));
      else if (gone_ || (signal > 0 && !stays_for(signal)))
        return ended_ || gone_ ? code_ : kExitSignal + (command_.child ? SIGTERM : signal);
      if (farewell_.was_told() && (ended_ || farewell_.may_go(Clock::now())))
        return ended_ ? code_ : kExitSignal + SIGTERM;
      if (!command_.child && ended_ && Clock::now() - *ended_ > kLinger) return code_;
    }
  }

  // Whether this coordinator has heard the end of the job; no coordinator of the group goes on after that end.
  bool job_ended() const { return ended_ && !gone_; }

  void finish() {
    const std::string missing = events_.finish();
    if (!missing.empty()) show_warning(missing);
    if (!spectator_) return;
    spectator_->close();
    if (const std::string sums = sinks_->status.now().sums(unix_time()); !sums.empty()) say(sums);
    if (const auto curve = sinks_->curve.save(
            (std::filesystem::path(events_.path()).parent_path() / "loss.svg").string(), job_.name);
        !curve)
      fail(curve.error());
  }

 private:
  // Warns people and the file.
  Result<> warn(const std::string& text) {
    show_warning(text);
    STARLING_TRY(events_.write(event::Warning{text}));
    return ok();
  }

  // Whether the coordinator goes on for the checkpoint of workers that may be told as well.
  bool stays_for(int signal) {
    const bool waits = !command_.child && signal == SIGTERM && job_.checkpoint.on() && !ended_;
    return waits && !farewell_.told(Clock::now());
  }

  Result<> take(const actors::Observed& seen) {
    farewell_.on(seen->event);
    // `run` gets the events of the coordinator that leads, which has measured what it tells.
    if (command_.child && seen->of_log) return ok();
    const auto* done = std::get_if<event::Done>(&seen->event);
    if (done && !last_step_seen_) {
      // The end may be told before the last steps, which come from workers.
      held_ = seen;
      held_at_ = Clock::now();
      return ok();
    }
    STARLING_TRY(written, events_.write(seen->event));
    if (spectator_ && (written || !seen->of_log)) spectator_->show(seen->event);
    // A child's `run` hears all coordinators, and warns itself.
    if (const auto warning =
            written && !command_.child ? anomalies_.take(seen->event) : std::nullopt) {
      STARLING_TRY(warn(warning->text));
    }
    if (const auto* step = std::get_if<event::StepPassed>(&seen->event)) {
      if (step->record.version + 1 == job_.steps) last_step_seen_ = true;
      manager_.status(service_status(step->record.version + 1, job_.steps, step->world));
    }
    if (last_step_seen_ && held_) return take_end();
    if (const auto* restarted = std::get_if<event::Restarted>(&seen->event))
      checkpoint_ = restarted->version;
    if (const auto* complete = std::get_if<event::CheckpointWritten>(&seen->event))
      checkpoint_ = std::max(checkpoint_.value_or(complete->version), complete->version);
    if (const auto* failed = std::get_if<event::Failed>(&seen->event)) {
      if (failed->code == kExitStateLost && checkpoint_) say_how_to_go_on(*checkpoint_);
      end(failed->code, failed->reason);
    }
    if (const auto* ended = std::get_if<event::Ended>(&seen->event)) {
      if (ended->checkpoint) say_how_to_go_on(*ended->checkpoint);
      end(kExitSignal + ended->signal, ended->reason);
    }
    if (done) end_well(*done);
    return ok();
  }

  Result<> take_end() {
    last_step_seen_ = true;
    return take(std::exchange(held_, nullptr));
  }

  Result<> take_over(const actors::CoordinatorOver& over) {
    gone_ = true;
    STARLING_TRY(events_.write(event::Warning{over.reason}));
    end(over.code, over.reason);
    return ok();
  }

  void say_how_to_go_on(Version checkpoint) {
    say("ended; a new group goes on from the checkpoint of step " + std::to_string(checkpoint) +
        ": this command with --resume --new, another --state and another --out");
  }

  void end(int code, const std::string& reason) {
    manager_.say(reason);
    ended_ = Clock::now();
    code_ = code;
    if (spectator_) spectator_->close();
    if (code == 0)
      say(reason);
    else if (!command_.child || gone_)
      fail(code, reason);
  }

  void end_well(const event::Done& done) {
    manager_.say(done_text(done));
    ended_ = Clock::now();
    if (!spectator_) return;
    spectator_->close();
    say(done_text(done));
    if (const std::string doubt = spectator_->doubt(); !doubt.empty()) spectator_->warn(doubt);
    const std::string diverged = spectator_->diverged();
    if (!diverged.empty()) code_ = fail(kExitRefuted, diverged);
  }

  const CoordinatorCommand& command_;
  const Job& job_;
  EventWriter& events_;
  std::optional<Spectator>& spectator_;
  const SinksThere* const sinks_;
  Anomalies anomalies_;
  Farewell farewell_;
  ServiceManager& manager_;
  std::optional<Clock::time_point> ended_;
  actors::Observed held_;  // a good end, until the last step is told; null: none
  Clock::time_point held_at_;
  std::optional<Version> checkpoint_;  // the newest that is known
  bool last_step_seen_ = false;
  bool gone_ = false;  // this coordinator, not the job
  int code_ = 0;
};

// Has another one lead before this one goes: it begins at once, where the others would wait to miss this one.
void hand_over(caf::actor_system& system, const caf::actor& coordinator) {
  caf::scoped_actor self(system);
  const auto until = Clock::now() + kHandOver;
  for (bool leads = true; leads && Clock::now() < until;
       std::this_thread::sleep_for(kCoordinatorPoll)) {
    leads = false;
    self->request(coordinator, kHandOver, actors::hand_over_atom_v)
        .receive([&](bool still) { leads = still; }, [](const caf::error&) {});
    if (!leads) return;
  }
}

Result<int> coordinate(const CoordinatorCommand& command) {
  STARLING_TRY(options, options_of(command));
  const Job job = options.job;
  const JobId run = options.job_id;
  options.told = command.child ? Version(command.told) : told_in(events_path(command));
  KeyWatch keys(command.keys, command.name, options.job_id);
  const Version from =
      options.checkpoints.empty() ? Version{0} : options.checkpoints.back().version;
  const std::string remark = script_remark(job, options.checkpoints);
  const std::string named =  // where the others look for this one
      options.joins || command.peers.empty() ? "" : options.group[options.self].address;
  const std::string addresses = addresses_of(command);
  auto config = actors::make_system_config();
  caf::actor_system system(config);
  const auto control = options.control;
  // The folder may lie in another new one; if it cannot be made, opening the log reports it.
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(command.state).parent_path(), ignored);
  // Open the log first: it says whether it belongs to this job.
  STARLING_TRY(coordinator, actors::spawn_coordinator(system, std::move(options)));
  Inbox inbox(system);
  caf::anon_send(coordinator.actor, actors::follow_atom_v, inbox.address());
  ServiceManager manager = manager_of(command.child);
  keep_telling(system, coordinator.actor, manager);
  const auto go = [&]() -> Result<int> {
    std::optional<Spectator> spectator;
    Sinks told;
    Anomalies anomalies(job);
    Farewell farewell;
    if (!command.child) {
      spectator.emplace(job);
      spectator->begins_at(from);
      told.status->remember(events_path(command));
    }
    STARLING_TRY(events, open_events(command, job, [&](const Event& event) {
                   spectator->remember(event);
                   told.curve->on(event);
                   (void)anomalies.take(event);
                   farewell.on(event);
                 }));
    // A child shows nothing, and serves nothing.
    std::optional<SinksThere> sinks;
    std::unique_ptr<PageServer> served;
    if (!command.child) {
      sinks.emplace(add_sinks(*events, std::move(told)));
      STARLING_TRY(server, serve_run(*events, job, sinks->status, command.metrics,
                                     [control](Exposition& out) { control->write(out); }));
      served = std::move(server);
      STARLING_TRY(add_tensorboard(*events, job, command.tensorboard, command.first && from == 0));
    }
    // A group takes the folder when it begins, and no coordinator that comes back does.
    if (command.first && !command.child) {
      STARLING_TRY(take_folder(job, run, {}));
    }
    if (!command.child) {
      event::Started started = start_of(job);
      started.from = from;
      started.address = addresses;
      started.keys = std::filesystem::absolute(command.keys);
      started.coordinator = command.name;
      STARLING_TRY(events->start(std::move(started)));
    }
    Follower follower(command, job, *events, spectator, sinks ? &*sinks : nullptr,
                      std::move(anomalies), std::move(farewell), manager);
    if (!named.empty() && !named.ends_with(":" + std::to_string(coordinator.port)) &&
        !command.child) {
      const std::string text =
          command.name + " listens at port " + std::to_string(coordinator.port) +
          ", and --peers has it at " + named +
          ": the others reach it there alone, so that address has to lead here";
      STARLING_TRY(events->write(event::Warning{text}));
      follower.show_warning(text);
    }
    if (!remark.empty()) {
      STARLING_TRY(events->write(event::Warning{remark}));
      follower.show_warning(remark);
    }
    follower.say(command.name + " listens at port " + std::to_string(coordinator.port) +
                 ", events go to " + events->path() +
                 (served ? ", metrics are at " + served->url() + "/metrics" : ""));
    manager.say("waits for workers");
    manager.ready();  // it listens; a leader takes other coordinators, too
    auto code = follower.follow(inbox, coordinator.actor, keys);
    follower.finish();
    // The last to do, as the claim of `run`: a coordinator that only goes away may come back.
    if (!command.child && follower.job_ended() && job.checkpoint.on())
      give_up_checkpoints(*open_storage(job.checkpoint.dir), run);
    return code;
  };
  auto code = go();
  hand_over(system, coordinator.actor);
  caf::anon_send(coordinator.actor, actors::stop_atom_v);
  return code;
}

}  // namespace

int coordinator(CoordinatorCommand command) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a full file size limit becomes a write error, as a full disk
  auto name = own_name(command);
  if (!name) return fail(name.error());
  command.name = std::move(name).value();
  if (!command.remove.empty()) {
    auto code = take_out(command);
    return code ? code.value() : fail(code.error());
  }
  if (command.job.empty()) return fail(Error(Code::kBadInput, "--job: a job file is expected"));
  if (command.child) ::prctl(PR_SET_PDEATHSIG, order_signal());
  const sigset_t set = command.child ? blocked_in_children() : ending_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  auto code = coordinate(command);
  return code ? code.value() : fail(code.error());
}

}  // namespace starling::tools
