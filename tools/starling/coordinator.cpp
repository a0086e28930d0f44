// `starling coordinator`: one member of the Raft group as a process of its own.

#include "actors/coordinator/coordinator.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "actors/system.h"
#include "kernels/models/model.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"
#include "tools/starling/group.h"
#include "tools/starling/happening.h"
#include "tools/starling/resume.h"

namespace starling::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPoll{50};
constexpr std::chrono::seconds kLinger{5};  // after the job's end: late workers still hear of it

sigset_t ending_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT}) ::sigaddset(&set, s);
  return set;
}

Result<actors::CoordinatorOptions> options_of(const CoordinatorCommand& command) {
  actors::CoordinatorOptions options;
  STARLING_TRY(job, load_job(command.job));
  options.job = std::move(job);
  STARLING_TRY(model, kernels::make_model(options.job.model, options.job.isa));
  options.layout = std::make_shared<const Layout>(model->tensors());
  if (command.resume) {
    STARLING_TRY(checkpoints, checkpoints_to_resume(options.job, *options.layout));
    options.checkpoints = std::move(checkpoints);
  }
  STARLING_TRY(ring, KeyRing::load(command.keys));
  STARLING_TRY(group,
               coordinators_at(ring, command.peers.empty() ? command.listen : command.peers));
  options.group = std::move(group);
  const KeyPair* key = ring.find(command.name);
  while (options.self < options.group.size() && options.group[options.self].name != command.name)
    ++options.self;
  if (!key || key->secret_key.empty() || options.self == options.group.size())
    return Error(Code::kBadInput,
                 command.keys + " has no secret key of a coordinator named " + command.name);
  options.key = *key;
  STARLING_TRY(address, coordinator_address(command.listen));
  options.address = std::move(address);
  options.job_id = job_id_of(ring);
  options.allowed = ring.allow_list();
  options.state_dir = command.state;
  options.wanted_workers = command.workers;
  STARLING_TRY(level, log_level(command.log));
  options.log = level;
  return options;
}

Result<std::unique_ptr<EventWriter>> open_events(const CoordinatorCommand& command) {
  if (command.child) return EventWriter::into(::dup(STDOUT_FILENO));
  if (command.out.empty()) return std::unique_ptr<EventWriter>();
  return EventWriter::open(command.out);
}

// Until a signal or, unless it is a child, some time after the job's end.
Result<int> follow(caf::scoped_actor& self, EventWriter* events, bool ledger, bool child) {
  const sigset_t set = ending_signals();
  std::optional<Clock::time_point> ended;
  int code = 0;
  Result<> written = ok();
  const auto take = [&](const actors::Observed& seen) {
    if (events && written) written = write_event(*events, *seen, ledger);
    if (seen->kind != elastic::Observation::Kind::kEnd) return;
    ended = Clock::now();
    code = seen->end.exit_code;
    if (!child && code != 0) fail(code, seen->end.reason);
  };
  for (;;) {
    self->receive(
        take, caf::after(kPoll) >> [] {});
    if (!written && child) return code;  // the `run` that read them has ended
    if (!written) return std::move(written).error();
    const timespec now{};
    const int signal = ::sigtimedwait(&set, nullptr, &now);
    if (signal > 0) return ended ? code : 128 + signal;
    if (!child && ended && Clock::now() - *ended > kLinger) return code;
  }
}

Result<int> coordinate(const CoordinatorCommand& command) {
  STARLING_TRY(options, options_of(command));
  STARLING_TRY(events, open_events(command));
  const Job job = options.job;
  const Version from = options.checkpoints.empty() ? 0 : options.checkpoints.back().version;
  const std::string addresses = command.peers.empty() ? command.listen : command.peers;
  auto config = actors::make_system_config();
  caf::actor_system system(config);
  STARLING_TRY(coordinator, actors::spawn_coordinator(system, std::move(options)));
  caf::scoped_actor self(system);
  self->send(coordinator.actor, actors::follow_atom_v, caf::actor_cast<caf::actor>(self));
  Result<int> code = 0;
  Result<> started = ok();
  if (events && !command.child)
    started =
        events->start(job, "", {}, 0, addresses, std::filesystem::absolute(command.keys), from);
  if (!command.child) {
    std::printf("%s listens at port %u\n", command.name.c_str(), unsigned{coordinator.port});
    std::fflush(stdout);
  }
  if (started) code = follow(self, events.get(), job.ledger_events, command.child);
  self->send(coordinator.actor, actors::stop_atom_v);
  if (!started) return std::move(started).error();
  return code;
}

}  // namespace

int coordinator(const CoordinatorCommand& command) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error of the write, as a full disk is
  if (command.child) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const sigset_t set = ending_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  auto code = coordinate(command);
  return code ? code.value() : fail(code.error());
}

}  // namespace starling::tools
