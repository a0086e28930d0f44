// `starling worker`: one worker of a job, with its guard as parent process.

#include "actors/worker/worker.h"

#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "actors/guard/guard.h"
#include "actors/notices/watch.h"
#include "actors/sabotage.h"
#include "actors/system.h"
#include "actors/worker/loader.h"
#include "collectives/tcp/socket.h"
#include "tools/bench/step_times.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"
#include "tools/starling/group.h"
#include "tools/starling/model_file.h"

namespace starling::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPoll{50};
// A terminal or a process group's signal may reach worker and guard alike, which passes it on.
constexpr milliseconds kSameSignal{500};

struct Life {
  WorkerCommand command;
  Job job;
  actors::WorkerOptions options;  // all but the setup
};

// A signal that has arrived, or 0.
int pending_signal() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  const timespec now{};
  const int signal = ::sigtimedwait(&set, nullptr, &now);
  return signal > 0 ? signal : 0;
}

// Until the worker is over, or a signal ends it: then there is no WorkerOver.
int wait_for_end(caf::scoped_actor& self, const caf::actor& worker, const Life& life,
                 actors::WorkerOver& over) {
  std::optional<Clock::time_point> leaving;
  bool done = false;
  while (!done) {
    self->receive([&](const actors::WorkerOver& end) { over = end, done = true; },
                  [&](const caf::down_msg&) {  // before it knew us; it has logged why
                    over.code = 2;
                    done = true;
                  },
                  caf::after(kPoll) >> [] {});
    const int signal = done ? 0 : pending_signal();
    if (signal == SIGINT ||
        (signal == SIGTERM && leaving && Clock::now() - *leaving > kSameSignal)) {
      self->send_exit(worker, caf::exit_reason::user_shutdown);
      return 128 + signal;
    }
    if (signal == SIGTERM && !leaving) {
      leaving = Clock::now();
      const double notice_ms = 1000 * life.command.notice_s;
      self->send(worker, Notice{"SIGTERM", "", static_cast<std::uint64_t>(notice_ms), true});
    }
  }
  return over.fenced ? actors::kFencedStatus : over.code;
}

// Of the cloud that the command names or the firmware; null: of none.
Result<std::unique_ptr<actors::NoticeWatch>> cloud_watch(const WorkerCommand& command,
                                                         const Log& log) {
  std::optional<actors::Cloud> cloud;
  if (command.notices.cloud == "auto") cloud = actors::cloud_here();
  for (const auto named : {actors::Cloud::kAws, actors::Cloud::kGcp, actors::Cloud::kAzure})
    if (command.notices.cloud == actors::to_string(named)) cloud = named;
  if (!cloud) return std::unique_ptr<actors::NoticeWatch>();
  return actors::NoticeWatch::make(*cloud, command.notices.metadata, log);
}

int finish(const Life& life, const actors::TrainingSetup& setup, const actors::WorkerOver& over,
           const std::vector<actors::StepTimes>& times, int status) {
  if (status != 0 && status != actors::kFencedStatus && !over.reason.empty())
    return over.told && life.command.quiet ? status : fail(status, over.reason);
  if (over.job_done && !life.command.save.empty() && over.parameters) {
    const auto saved = save_model(life.command.save, setup.job, *setup.layout, *over.parameters);
    if (!saved) return fail(saved.error());
  }
  if (over.job_done && !life.command.times.empty()) {
    const auto saved = bench::save_step_times(life.command.times, times);
    if (!saved) return fail(saved.error());
  }
  if (life.command.quiet || status != 0) return status;
  if (over.job_done) {
    std::printf("%s done: loss %.6g, digest %s\n", life.options.key.name.c_str(), over.loss,
                to_string(over.digest).c_str());
  } else {
    std::printf("%s left\n", life.options.key.name.c_str());
  }
  return status;
}

// Frames are made in one thread and freed in another: with an arena for each thread and a threshold
// that grows, the allocator would keep several steps' worth of them.
void keep_memory_small() {
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 8 << 20);
}

// In the child process of the guard.
int work(const Life& life, actors::SharedLife& shared) {
  keep_memory_small();
  auto watch =
      cloud_watch(life.command, Log(life.options.log, {{"worker", life.options.key.name}}));
  if (!watch) return fail(watch.error());
  auto setup = actors::set_up(life.job);
  if (!setup) return fail(setup.error());
  std::vector<actors::StepTimes> times;  // outlives the worker's actor
  auto config = actors::make_system_config();
  caf::actor_system system(config);
  const auto loader = actors::spawn_loader(system, setup.value()->batches);
  auto options = life.options;
  options.setup = setup.value();
  options.pid = static_cast<std::uint64_t>(::getpid());
  options.phase = &shared.phase;
  if (!life.command.times.empty()) options.times = &times;
  int status = 0;
  actors::WorkerOver over;
  {
    auto worker = actors::spawn_worker(system, std::move(options), loader);
    caf::scoped_actor self(system);
    if (worker) {
      self->monitor(worker.value());
      self->send(worker.value(), actors::follow_atom_v, caf::actor_cast<caf::actor>(self));
      if (watch.value())
        watch.value()->start([to = worker.value()](const Notice& n) { caf::anon_send(to, n); });
      status = wait_for_end(self, worker.value(), life, over);
      const bool handed_over = status == 0 && !over.job_done;
      if (watch.value() && handed_over && life.command.acknowledge) watch.value()->handed_over();
      watch.value().reset();
    } else {
      status = fail(worker.error());
    }
    self->send_exit(loader, caf::exit_reason::user_shutdown);
  }
  status = finish(life, *setup.value(), over, times, status);
  if (status == actors::kDamagedStatus)
    over.reason.copy(shared.reason.data(), shared.reason.size() - 1);
  actors::sabotage::leave_process(life.options.key.name);
  return status;
}

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

// Of an option's value; nothing of an empty one.
Result<HostPort> worker_address(const char* option, const std::string& text) {
  if (text.empty()) return HostPort{};
  auto address = coordinator_address(text);
  if (!address) return std::move(address).error().in(option);
  const std::string& whole = address.value();
  const auto colon = whole.rfind(':');
  const auto begin = whole.find("//") + 2;
  std::string host = whole.substr(begin, colon - begin);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')  // IPv6
    host = host.substr(1, host.size() - 2);
  return HostPort{std::move(host), static_cast<std::uint16_t>(std::stoul(whole.substr(colon + 1)))};
}

// Of this machine, as the coordinators see it. Their names may not be known yet, so it is asked for
// again for as long as a worker looks for a coordinator.
Result<std::string> own_address(const std::vector<actors::GatewayOptions::Server>& coordinators,
                                milliseconds patience) {
  const auto until = Clock::now() + patience;
  while (true) {
    std::string why;
    for (const auto& coordinator : coordinators) {
      STARLING_TRY(at, worker_address("--join", coordinator.address));
      auto own = collectives::address_towards(at.host, at.port);
      if (own) return own;
      why = own.error().text();
    }
    if (Clock::now() >= until)
      return Error(Code::kUnavailable,
                   "cannot tell which address of this machine the others reach, " + why +
                       "; --host says it");
    std::this_thread::sleep_for(kPoll);
  }
}

// Entry i of a synthetic model's `slow` is worker-i's.
double slowness(const Job& job, const std::string& name) {
  const auto* synthetic = std::get_if<SyntheticSpec>(&job.model);
  if (synthetic == nullptr) return 1;
  for (std::size_t i = 0; i < synthetic->slow.size(); ++i)
    if (name == "worker-" + std::to_string(i)) return synthetic->slow[i];
  return 1;
}

Result<Life> prepare(const WorkerCommand& command, const KeyRing& ring, const TakenKey& key) {
  Life life;
  life.command = command;
  const auto beside = std::filesystem::path(command.keys).parent_path() / "job.toml";
  STARLING_TRY(job, load_job(command.job.empty() ? beside.string() : command.job));
  life.job = std::move(job);
  STARLING_TRY(coordinators, coordinators_at(ring, command.join));
  STARLING_TRY(log, log_level(command.log));
  life.options.job_id = job_id_of(ring);
  life.options.self = Incarnation{0, fresh_nonce()};
  life.options.key = key.pair();
  life.options.coordinators = std::move(coordinators);
  STARLING_TRY(listen, worker_address("--listen", command.listen));
  STARLING_TRY(advertise, worker_address("--advertise", command.advertise));
  life.options.host = listen.host.empty() ? command.host : listen.host;
  if (life.options.host.empty()) {
    STARLING_TRY(
        own, own_address(life.options.coordinators, milliseconds(life.job.coordinator_timeout_ms)));
    life.options.host = std::move(own);
  }
  life.options.port = listen.port;
  life.options.advertised_host = advertise.host;
  life.options.advertised_port = advertise.port;
  life.options.failure_domain = command.failure_domain;
  life.options.threads = command.threads;
  life.options.slowness = command.slow.value_or(slowness(life.job, key.pair().name));
  life.options.log = log;
  return life;
}

Result<int> live(const WorkerCommand& command) {
  STARLING_TRY(ring, KeyRing::load(command.keys));
  STARLING_TRY(key, TakenKey::take(ring, command.keys, command.name));
  STARLING_TRY(life, prepare(command, ring, key));
  actors::GuardOptions guard;
  guard.job = life.options.job_id;
  guard.worker = life.options.self;
  guard.key = life.options.key;
  guard.coordinators = life.options.coordinators;
  return actors::run_guard(guard,
                           [&life](actors::SharedLife& shared) { return work(life, shared); });
}

}  // namespace

int worker(const WorkerCommand& command, char** arguments) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error of the write, as a full disk is
  auto ended = live(command);
  if (!ended) return fail(ended.error());
  const bool again =
      ended.value() == actors::kFencedStatus || ended.value() == actors::kDamagedStatus;
  if (!again) return ended.value();
  // Only a new image can fork a worker again: this process has had threads.
  ::execv("/proc/self/exe", arguments);
  return fail(5, "cannot begin a worker's new life");
}

}  // namespace starling::tools
