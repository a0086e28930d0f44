// `starling worker` is one worker of a job, with its guard as parent process.

#include "actors/worker/worker.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <tuple>

#include "actors/gateway/seats.h"
#include "actors/guard/guard.h"
#include "actors/notices/watch.h"
#include "actors/sabotage.h"
#include "actors/system.h"
#include "actors/worker/ask.h"
#include "actors/worker/loader.h"
#include "actors/worker/stuck.h"
#include "collectives/tcp/socket.h"
#include "core/base/address.h"
#include "core/base/build.h"
#include "core/base/environment.h"
#include "core/base/exit.h"
#include "core/base/join_token.h"
#include "core/base/mac.h"
#include "core/base/machine.h"
#include "core/base/s3_place.h"
#include "core/base/signals.h"
#include "core/base/thread_name.h"
#include "core/formats/job_file.h"
#include "core/formats/storage.h"
#include "core/observe/line_format.h"
#include "tools/bench/step_times.h"
#include "tools/starling/adapted.h"
#include "tools/starling/commands.h"
#include "tools/starling/cut_weights.h"
#include "tools/starling/exit.h"
#include "tools/starling/group.h"
#include "tools/starling/job_here.h"
#include "tools/starling/metrics_pages.h"
#include "tools/starling/model_file.h"
#include "tools/starling/prepared_run.h"
#include "tools/starling/spectator.h"
#include "tools/starling/watchdog.h"
#include "tools/starling/worker_door.h"
#include "tools/starling/worker_life.h"

namespace starling::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kReadFirst{2000};        // of reading data before a worker joins
constexpr std::chrono::seconds kThreadsEnd{5};  // for threads of a life that is over

struct Life {
  WorkerCommand command;
  std::optional<Job> own_job;     // the file that the command names
  actors::WorkerOptions options;  // all but the setup and the job's values
};

// Watches the cloud that the command or the firmware names; null: none.
Result<std::unique_ptr<actors::NoticeWatch>> cloud_watch(const WorkerCommand& command,
                                                         const Log& log) {
  std::optional<actors::Cloud> cloud;
  if (command.notices.cloud == "auto") cloud = actors::cloud_here();
  for (const auto named : {actors::Cloud::kAws, actors::Cloud::kGcp, actors::Cloud::kAzure})
    if (command.notices.cloud == actors::name_of(named)) cloud = named;
  if (!cloud) return std::unique_ptr<actors::NoticeWatch>();
  return actors::NoticeWatch::make(*cloud, command.notices.metadata, log);
}

void say(const std::string& name, const std::string& text) {
  write_line(LogLevel::kWarn, "starling: ", name + ": " + text);
}

// The job is done, and its model lies where this worker would have saved it.
void say_after_the_end(const std::string& name, const Digest& digest) {
  std::printf("%s came after the end: digest %s\n", name.c_str(), to_string(digest).c_str());
}

int finish(const Life& life, const actors::TrainingSetup& setup, const actors::WorkerOver& over,
           const std::vector<actors::StepTimes>& times, int status) {
  if (status == actors::kFencedStatus && !life.command.quiet)
    say(life.options.key.name, over.reason);
  if (status != 0 && status != actors::kFencedStatus && !over.reason.empty())
    return over.told && life.command.quiet ? status : fail(status, over.reason);
  const std::string& name = life.options.key.name;
  std::string place;  // of the model
  if (over.job_done && over.parameters && !life.command.save.empty()) {
    const Trained model{*over.parameters, over.parameters_digest, over.digest};
    const auto saved = save_model(life.command.save, setup.job, *setup.layout, model);
    if (!saved) {
      const std::string here = model_file_of(setup.job), &there = life.command.save;
      const bool kept =
          s3::is_place(there) && bool(save_model(here, setup.job, *setup.layout, model));
      return fail(actors::kNotHereStatus,
                  "the job is done, digest " + to_string(over.digest) + ", and the model is not " +
                      (kept ? "in " + there + ", but here, in " + here : "here") + ": " +
                      saved.error().text());
    }
    if (!saved.value().remark.empty()) say(name, saved.value().remark);
    place = saved.value().place;
  }
  if (over.job_done && !life.command.times.empty()) {
    const auto saved = bench::save_step_times(life.command.times, times);
    if (!saved) return fail(saved.error());
  }
  // A worker that announced its leave owes no model; nor does one where another's lies already.
  const bool missing = over.job_done && !over.parameters && !over.left &&
                       !is_model_of(life.command.save, over.digest);
  if (missing && !life.command.save.empty()) status = actors::kNotHereStatus;
  if (life.command.quiet) return status;
  if (missing) {
    say(name, "the job is done, digest " + to_string(over.digest) +
                  ", and the model is not here: " + over.why_not);
  } else if (over.job_done && over.parameters) {
    std::printf("%s done: loss %.6g, digest %s\n", name.c_str(), over.loss,
                to_string(over.digest).c_str());
    if (!place.empty()) std::printf("model: %s\n", place.c_str());
  } else if (status == 0 && over.job_done && !over.left) {
    say_after_the_end(name, over.digest);
  } else if (status == 0) {
    std::printf("%s left\n", name.c_str());
  }
  return status;
}

// Keeps the allocator small: frames are made in one thread and freed in another, so with an
// arena for each thread and a growing threshold it would keep several steps' worth of them.
void keep_memory_small() {
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 8 << 20);
}

// Returns worker-i's entry i of a synthetic model's `slow`.
double slowness(const Job& job, const std::string& name) {
  const auto* synthetic = std::get_if<SyntheticSpec>(&job.model);
  if (synthetic == nullptr) return 1;
  for (std::size_t i = 0; i < synthetic->slow.size(); ++i)
    if (name == "worker-" + std::to_string(i)) return synthetic->slow[i];
  return 1;
}

// Returns how long a worker waits for coordinators before it knows the job.
milliseconds patience_of(const Life& life) {
  if (life.command.wait_s > 0) return milliseconds(std::llround(life.command.wait_s * 1000));
  return milliseconds(life.own_job.value_or(Job{}).elastic.coordinator_timeout_ms);
}

// Told is what the coordinators hand over, or how the job ended before that.
struct Told {
  Job job;
  std::optional<int> status;
  std::vector<actors::GatewayOptions::Server> coordinators{};  // where they are now
};

// Handles a job that was over before this worker had joined. Returns its status.
int came_too_late(const Life& life, const Ended& end) {
  if (end.exit_code != 0) {
    // 143 would say that this worker has left, and is to be started again.
    const int code = end.exit_code == kExitTerminated ? kExitAlone : int{end.exit_code};
    return life.command.quiet ? code : fail(code, end.reason);  // `run` says it for its own
  }
  // Which model it is, a worker does not hear by now. A store may take long to say what it has: it is not asked.
  const std::string& save = life.command.save;
  const std::string adapters = (std::filesystem::path(save).parent_path() / kAdapterFile).string();
  const bool missing = !save.empty() && !s3::is_place(save) && !is_model_of(save, end.digest) &&
                       !is_model_of(adapters, end.digest);
  if (missing && life.command.quiet) return actors::kNotHereStatus;
  if (missing)
    return fail(actors::kNotHereStatus,
                life.options.key.name + " came after the end: the job is done, digest " +
                    to_string(end.digest) +
                    ", and the model is not here: this worker has computed none");
  if (!life.command.quiet) say_after_the_end(life.options.key.name, end.digest);
  return 0;
}

Result<Told> hear_of_job(const Life& life) {
  actors::AskOptions ask{life.options};
  ask.patience = patience_of(life);
  Asked asked_to;
  ask.give_up = [&] { return (asked_to = asked_by_signal(life.command)).signal != 0; };
  if (!life.command.quiet)
    ask.waiting = [](const std::string& line) { write_line(LogLevel::kWarn, "starling: ", line); };
  auto asked = actors::ask_for_job(ask);
  if (asked_to.signal != 0)
    return Told{{}, asked_to.leaves ? kExitTerminated : kExitSignal + asked_to.signal, {}};
  if (!asked) return std::move(asked).error();
  if (asked.value().ended) return Told{{}, came_too_late(life, asked.value().end), {}};
  STARLING_TRY(job, job_here(life.command, life.own_job, asked.value().job_text));
  Told told{std::move(job), std::nullopt, {}};
  told.coordinators = std::move(asked.value().coordinators);
  return told;
}

// Ends this life in time. A thread that hangs, in a file system or in a model,
// would keep its process, and so its guard from beginning a new life, for as long.
void end_within(std::chrono::seconds time, int status) {
  std::thread([time, status] {
    std::this_thread::sleep_for(time);
    std::fflush(nullptr);
    ::_exit(status);
  }).detach();
}

// Returns 3 for worker-3: workers of one machine take its GPUs in turn. 0 where there is none.
std::uint32_t number_at_the_end(const std::string& name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  std::uint32_t number = 0;
  std::from_chars(name.data() + last + 1, name.data() + name.size(), number);
  return number;
}

// Leaves reason and exit code of this life's end for the guard to tell. Returns the code.
int say_last_word(actors::SharedLife& shared, int status, const std::string& reason) {
  reason.copy(shared.reason.data(), shared.reason.size() - 1);
  if (status > 0 && status <= kExitInternal) shared.exit_code = static_cast<std::uint8_t>(status);
  return status;
}

// Serves what the worker counts, and what it is at. Both must outlive the server.
Result<std::unique_ptr<PageServer>> serve_worker(const Life& life,
                                                 const actors::WorkerCounters& counters,
                                                 const actors::SharedLife& shared) {
  const auto write = [name = life.options.key.name, &counters, &shared](Exposition& out) {
    out.gauge("starling_worker_info", "The build and the worker's name; always 1.",
              {{label("build", build_text()) + "," + label("worker", name), 1}});
    counters.write(out, shared.phase);
  };
  return serve_metrics(life.command.metrics, write, {}, "metrics are at /metrics");
}

// Runs in the child process of the guard.
int work(const Life& begun, ServiceManager& manager, actors::SharedLife& shared) {
  std::optional<AliveMeanwhile> alive(std::in_place, manager);
  keep_memory_small();
  auto watch =
      cloud_watch(begun.command, Log(begun.options.log, {{"worker", begun.options.key.name}}));
  if (!watch) return fail(watch.error());
  auto told = hear_of_job(begun);
  if (!told) return fail(told.error());
  if (told.value().status) return *told.value().status;
  const Job& job = told.value().job;
  Life life = begun;
  life.command.save = model_path(life.command.save, job);
  const std::string& name = life.options.key.name;
  const auto child_lost = [&name](const std::string& why) {
    say(name, why + "; another one takes its place");
  };
  // The guard begins a new life, as for memory that has changed.
  const auto gpu_lost = [&name, &shared](const std::string& why) {
    say_last_word(shared, actors::kDamagedStatus, name + ": " + why);
    say(name, why);
    std::fflush(nullptr);
    ::_exit(actors::kDamagedStatus);
  };
  const kernels::DeviceChoice device{.gpu = life.command.gpu.value_or(number_at_the_end(name)),
                                     .on_lost = gpu_lost};
  const auto say_stuck = [name](const std::string& line) { say(name, line); };
  const auto stuck = std::make_shared<actors::Stuck>(gpu_lost, say_stuck);  // what hangs keeps it
  auto transport = actors::open_transport(
      job, life.command.transport,
      [stuck](const std::string& why, Rank self) { stuck->on_stuck(why, self); });
  if (!transport) return say_last_word(shared, fail(transport.error()), transport.error().text());
  auto setup = actors::set_up(job, {life.options.threads, child_lost, device});
  if (!setup) return say_last_word(shared, fail(setup.error()), setup.error().text());
  if (lora_of(job.model).on()) end_where_weights_are_cut(shared, weights_of(job.model));
  if (transport.value().library) stuck->watch(setup.value()->device);
  std::vector<actors::StepTimes> times;  // outlives the worker's actor
  actors::LatestStep latest;             // too
  auto config = actors::make_system_config();
  caf::actor_system system(config);
  const auto loader = actors::spawn_loader(system, setup.value()->batches);
  auto options = life.options;
  options.coordinators = std::move(told.value().coordinators);
  options.setup = setup.value();
  options.data = actors::read_data(*setup.value(), kReadFirst);
  options.transport = std::move(transport).value();
  options.slowness = life.command.slow.value_or(slowness(job, options.key.name));
  options.pid = static_cast<std::uint64_t>(::getpid());
  if (!life.command.save.empty() && !s3::is_place(life.command.save))
    options.folder = std::filesystem::path(life.command.save).parent_path().string();
  options.phase = &shared.phase;
  options.latest = &latest;
  if (!life.command.times.empty()) options.times = &times;
  int status = 0;
  bool handed_over = false;
  const auto counters = options.counters;
  auto served = serve_worker(life, *counters, shared);
  // A later life may find its port taken, and the worker is worth more than its metrics.
  if (!served && !environment().is_set(EnvVar::kLaterLife))
    return say_last_word(shared, fail(served.error()), served.error().text());
  if (!served) say(name, served.error().text() + "; it goes on without metrics");
  actors::WorkerOver over;
  const OlderModel older(life.command.save);
  {
    WorkerInbox inbox(system);
    auto worker = actors::spawn_worker(system, std::move(options), loader, inbox.address());
    if (worker) {
      shared.listens = true;
      inbox.watch(worker.value());
      alive.reset();
      keep_telling(system, worker.value(), manager);
      if (watch.value())
        watch.value()->start([to = worker.value()](const Notice& n) { caf::anon_send(to, n); });
      status = wait_for_end(inbox, worker.value(), life.command, latest, job, manager, over);
      // All others have left, and this worker has taken part in nothing (came_too_late() is of those that hear
      // so before they have joined).
      if (status == kExitTerminated && over.told && !over.left && !latest.any())
        status = kExitAlone;
      alive.emplace(manager);
      handed_over = status == 0 && !over.job_done;
      if (watch.value() && handed_over && life.command.acknowledge) watch.value()->handed_over();
      watch.value().reset();
    } else {
      status = fail(worker.error());
    }
    caf::anon_send_exit(loader, caf::exit_reason::user_shutdown);
  }
  shared.over = over.told || handed_over;
  status = finish(life, *setup.value(), over, times, status);
  // 143 has Slurm, Kubernetes and systemd start another worker, as this one's machine goes. Nothing is to take the place
  // of a worker that an admin has drained or evicted, and that announced no leave itself.
  if (handed_over) status = over.left ? kExitTerminated : life.command.drained_code;
  // A reader of the job's model must find no other one under its name.
  if (status == kExitBadInput || status == actors::kNotHereStatus)
    if (const std::string line = older.move_aside(over.digest); !line.empty()) say(name, line);
  if (status != 0 && status != actors::kFencedStatus && !handed_over)
    say_last_word(shared, status, over.reason);
  actors::sabotage::leave_process(life.options.key.name);
  end_within(kThreadsEnd, status);
  return status;
}

// Reads an option's value; an empty one gives an empty address.
Result<Address> address_of(const char* option, const std::string& text) {
  if (text.empty()) return Address{};
  auto address = parse_address(text);
  if (!address) return std::move(address).error().in(option);
  return address;
}

// Refuses "all addresses of this machine", which no one can dial.
Result<> check_reachable(const char* option, const std::string& host) {
  if (!means_everywhere(host)) return ok();
  return Error(Code::kBadInput,
               host + " is no address at which others reach this machine; " + option);
}

// `moved`: where coordinators are, if not where the door says.
Result<Life> prepare(const WorkerCommand& command, const WorkerDoor& door, const Seats& moved) {
  Life life;
  life.command = command;
  if (command.save.empty() && !command.quiet) life.command.save = kModelFile;
  if (command.save == "none") life.command.save.clear();
  if (s3::is_place(command.save)) {
    STARLING_TRY(s3::parse_place(command.save));
    STARLING_TRY(may_write(command.save));
  }
  if (!command.job.empty()) {
    STARLING_TRY(job, load_job(command.job));
    life.own_job = std::move(job);
  }
  STARLING_TRY(coordinators, coordinators_at(door.key.ring(), door.addresses));
  STARLING_TRY(log, log_level(command.log));
  life.options.job_id = job_id_of(door.key.ring());
  life.options.self = Incarnation{0, fresh_nonce()};
  life.options.key = door.key.pair();
  write_lines_as(line_format(), life.options.key.name);
  if (const std::string& file = command.identity_token; !file.empty())
    life.options.enrols =
        actors::GatewayOptions::Enrols{[file] { return read_identity_token(file); }};
  actors::take_seats(moved, coordinators);
  life.options.coordinators = std::move(coordinators);
  STARLING_TRY(listen, address_of("--listen", command.listen));
  STARLING_TRY(advertise, address_of("--advertise", command.advertise));
  STARLING_TRY(check_reachable("--host", command.host));
  STARLING_TRY(check_reachable("--advertise", advertise.host));
  life.options.host = listen.host.empty() ? command.host : listen.host;
  life.options.advertised_host = advertise.host;
  const bool anywhere = life.options.host.empty() || means_everywhere(life.options.host);
  if (anywhere && (life.options.host.empty() || advertise.host.empty())) {
    STARLING_TRY(own, own_address(life.options.coordinators, patience_of(life)));
    (life.options.host.empty() ? life.options.host : life.options.advertised_host) = std::move(own);
  }
  life.options.port = listen.port;
  life.options.advertised_port = advertise.port;
  life.options.failure_domain = command.failure_domain;
  life.options.role = command.role;
  life.options.threads = command.threads;
  life.options.log = log;
  return life;
}

// `moved` gets what coordinators say of their addresses.
Result<int> live(const WorkerCommand& command, Seats& moved) {
  STARLING_TRY(door, door_of(command));
  ServiceManager manager = manager_of(command.child);
  manager.say("asks coordinators for the job");
  manager.ready();  // it has its key; coordinators and work may be far away
  std::optional<AliveMeanwhile> alive(std::in_place, manager);
  STARLING_TRY(life, prepare(command, door, moved));
  alive.reset();  // the guard is to have no thread
  actors::GuardOptions guard{life.options};
  guard.moved = [&moved](const Seats& seats) { add_seats(seats, moved); };
  guard.too_late = [&life](const Ended& end) { return came_too_late(life, end); };
  const std::uint64_t kills = kills_for_memory();
  STARLING_TRY(status, actors::run_guard(guard, [&](actors::SharedLife& shared) {
                 return work(life, manager, shared);
               }));
  if (status == 128 + SIGKILL && kills_for_memory() > kills)
    return fail(kExitAlone, guard.key.name + ": the kernel killed it, as memory is short; " +
                                memory_text(memory_here()) + " is what there is");
  return int{status};
}

// Moves the token to the environment before anything else is done:
// every user of the machine can read a process's arguments, but only
// its owner its environment. Returns the arguments of the next life.
std::vector<char*> without_token(const WorkerCommand& command, char** arguments) {
  std::vector<char*> kept;
  const bool token = is_join_token(command.join);
  if (token) ::setenv(name_of(EnvVar::kJoin), command.join.c_str(), 1);
  for (char** at = arguments; *at != nullptr; ++at) {
    const char* found = token ? std::strstr(*at, command.join.c_str()) : nullptr;
    if (found == nullptr) {
      kept.push_back(*at);
      continue;
    }
    if (found == *at && !kept.empty()) kept.pop_back();  // its option; else one word has both
    std::memset(*at + (found - *at), 'x', std::strlen(found));
  }
  kept.push_back(nullptr);
  return kept;
}

}  // namespace

int worker(const WorkerCommand& command, char** arguments) {
  name_thread("starling");  // one that was started as /proc/self/exe would be `exe`
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a full file size limit becomes a write error, as a full disk
  const std::vector<char*> again_with = without_token(command, arguments);
  if (command.words >= 0 && ::fcntl(command.words, F_SETFD, FD_CLOEXEC) == 0)
    fail_into(command.words);
  Seats moved = passed_on();
  auto ended = live(command, moved);
  if (!ended) return fail(ended.error());
  const bool again =
      ended.value() == actors::kFencedStatus || ended.value() == actors::kDamagedStatus;
  if (!again) return ended.value();
  if (command.words >= 0) ::fcntl(command.words, F_SETFD, 0);
  pass_on(moved);
  ::setenv(name_of(EnvVar::kLaterLife), "1", 1);
  // Only a new image can fork a worker again: this process has had threads.
  ::execv("/proc/self/exe", again_with.data());
  return fail(kExitInternal, "cannot begin a worker's new life");
}

}  // namespace starling::tools
