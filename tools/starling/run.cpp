// `starling run`: a whole job on this machine.

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "core/data/dataset.h"
#include "kernels/models/model.h"
#include "tools/starling/commands.h"
#include "tools/starling/coordinators.h"
#include "tools/starling/exit.h"
#include "tools/starling/group.h"
#include "tools/starling/resume.h"
#include "tools/starling/signals.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPoll{50};
constexpr milliseconds kSignalGrace{3000};  // after Ctrl-C, before what is left is killed
constexpr milliseconds kEndGrace{60000};    // after the job's end: the model is being saved
constexpr milliseconds kLastWord{2000};     // of coordinators, when all workers have ended
constexpr std::uint32_t kSpareKeys = 64;    // for workers that join later

Result<Job> job_to_run(const RunOptions& options) {
  STARLING_TRY(job, load_job(options.job));
  if (options.steps) job.steps = *options.steps;
  if (options.seed) job.seed = *options.seed;
  if (options.lease_ms) job.lease_ms = *options.lease_ms;
  if (options.replicas) job.replicas = *options.replicas;
  if (!options.checkpoints.empty() && !job.checkpoint.on())
    return Error(Code::kBadInput, "--checkpoints needs a [checkpoint] section in " + options.job);
  if (!options.checkpoints.empty()) job.checkpoint.dir = fs::absolute(options.checkpoints);
  return parse_job(format_job(job), "/");  // an option's value is checked as the file's is
}

std::string default_folder(const Job& job) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &utc);
  return "runs/" + job.name + "-" + text;
}

// Everything that is there before a process is started.
struct Prepared {
  Job job;
  std::string folder;  // absolute
  std::shared_ptr<const Layout> layout;
  std::string isa;
  Digest data{};
  std::uint64_t samples = 0;
  std::vector<Checkpoint> checkpoints;  // to go on from
  KeyRing ring;
  std::unique_ptr<EventWriter> events;

  std::string path(const char* name) const { return (fs::path(folder) / name).string(); }
};

Result<> write_job(const Prepared& run) {
  std::ofstream file(run.path("job.toml"));
  file << format_job(run.job);
  file.close();
  if (!file) return Error(Code::kBadInput, "cannot write " + run.path("job.toml"));
  return ok();
}

Result<Prepared> prepare(const RunOptions& options) {
  Prepared run;
  STARLING_TRY(job, job_to_run(options));
  run.job = std::move(job);
  STARLING_TRY(model, kernels::make_model(run.job.model, run.job.isa));
  run.layout = std::make_shared<const Layout>(model->tensors());
  run.isa = model->isa();
  STARLING_TRY(data, Dataset::open(run.job));
  run.data = data->identity();
  run.samples = data->samples();

  STARLING_TRY(checkpoints, open_checkpoints(run.job, *run.layout, options.resume));
  run.checkpoints = std::move(checkpoints);

  const std::string folder = options.out.empty() ? default_folder(run.job) : options.out;
  std::error_code error;
  run.folder = fs::absolute(folder, error).lexically_normal().string();
  STARLING_TRY(events, EventWriter::open(run.folder));
  run.events = std::move(events);
  // Left by a run that ended before its first event; with events it would have been refused.
  fs::remove(run.path("keys"), error);
  run.ring = KeyRing::generate(options.coordinators, options.workers + kSpareKeys);
  STARLING_TRY(run.ring.save(run.path("keys")));
  STARLING_TRY(write_job(run));
  return run;
}

class Run {
 public:
  Run(RunOptions options, Prepared prepared)
      : options_(std::move(options)), run_(std::move(prepared)), spectator_(run_.job.steps) {}

  Result<int> go() {
    CoordinatorsOptions coordinators;
    coordinators.job = run_.job;
    coordinators.layout = run_.layout;
    coordinators.ring = &run_.ring;
    coordinators.folder = run_.folder;
    coordinators.count = options_.coordinators;
    coordinators.host = options_.host;
    coordinators.workers = options_.workers;
    coordinators.checkpoints = run_.checkpoints;
    coordinators.log = options_.log;
    STARLING_TRY(started, options_.coordinators == 1
                              ? start_embedded(coordinators, *run_.events)
                              : start_processes(coordinators, *run_.events, children_));
    coordinators_ = std::move(started);
    const Version from = run_.checkpoints.empty() ? 0 : run_.checkpoints.back().version;
    STARLING_TRY(run_.events->start(run_.job, "isa " + run_.isa, run_.data, run_.samples,
                                    coordinators_->address(), run_.path("keys"), from));
    if (options_.resume)
      spectator_.say(
          (from == 0 ? "no checkpoint yet: begins at step 0, will write to "
                     : "goes on from the checkpoint of step " + std::to_string(from) + " in ") +
          run_.job.checkpoint.dir);
    for (std::uint32_t i = 0; i < started_here(); ++i) {
      STARLING_TRY(pid, start_worker());
      workers_.push_back(pid);
    }
    STARLING_TRY(code, follow());
    return finish(code);
  }

 private:
  std::uint32_t started_here() const {
    return std::min(options_.start.value_or(options_.workers), options_.workers);
  }

  Result<pid_t> start_worker() {
    return children_.spawn({"worker", "--quiet", "--join", coordinators_->address(), "--keys",
                            run_.path("keys"), "--host", options_.host, "--threads",
                            std::to_string(options_.threads), "--save",
                            run_.path("model.safetensors"), "--notices", options_.notices.cloud,
                            "--metadata", options_.notices.metadata, "--log", options_.log});
  }

  // Until the job's end, a signal, or nobody is left who could go on.
  Result<int> follow() {
    for (;;) {
      STARLING_TRY(happenings, coordinators_->wait(kPoll));
      for (const Happening& happening : happenings) {
        spectator_.show(happening);
        if (happening.end) {
          end_ = happening.end;
          return int{end_->exit_code};
        }
      }
      if (const int signal = pending_signal()) {
        signal_ = signal;
        return 128 + signal;
      }
      STARLING_TRY(stuck, look_after_children());
      if (stuck) return *stuck;
    }
  }

  // The exit code if the job cannot begin or go on: all workers have ended by themselves and no end
  // is told. (Workers that were killed are the coordinators' business.)
  Result<std::optional<int>> look_after_children() {
    for (const ChildEnd& child : children_.reap()) {
      STARLING_TRY(coordinator, coordinators_->child_ended(child.pid));
      if (coordinator || std::erase(workers_, child.pid) == 0) continue;
      if (child.status == 2 && !spectator_.epoch_seen()) return std::optional<int>(2);
      if (child.status < 128) last_status_ = std::max(last_status_, child.status);
      if (workers_.empty()) alone_at_ = Clock::now();
    }
    const bool over = alone_at_ && Clock::now() - *alone_at_ > kLastWord;
    if (over && last_status_ > 0) return std::optional<int>(last_status_);
    return std::optional<int>();
  }

  int finish(int code) {
    if (signal_ != 0) spectator_.say("ending");
    if (!end_) children_.signal_all(SIGINT);
    const bool others_go_on = started_here() < options_.workers || workers_.empty();
    int worst = wait_for_workers(end_ ? kEndGrace : kSignalGrace);
    if (end_ && others_go_on) linger();
    coordinators_.reset();
    children_.signal_all(SIGTERM);  // coordinator processes
    children_.wait_all(kSignalGrace);
    if (const auto killed = children_.kill_rest(); killed > 0)
      fail(5, std::to_string(killed) + " processes did not end and were killed");
    if (const auto curve = spectator_.save_curve(run_.path("loss.svg"), run_.job.name); !curve)
      worst = fail(curve.error());
    if (!end_) return code;
    if (end_->exit_code != 0) return fail(end_->exit_code, end_->reason);
    std::printf("done: version %llu, loss %.6g, digest %s\n",
                static_cast<unsigned long long>(end_->version), end_->loss,
                to_string(end_->digest).c_str());
    return worst;
  }

  // Workers that others have started still hear of the end.
  void linger() {
    const auto until = Clock::now() + kLastWord;
    while (Clock::now() < until && pending_signal() == 0)
      if (auto seen = coordinators_->wait(kPoll); !seen) return;
  }

  // Workers save the model and go. Returns what a failed one ended with after a good end, else 0.
  int wait_for_workers(milliseconds grace) {
    const auto deadline = Clock::now() + grace;
    int worst = 0;
    while (!workers_.empty() && Clock::now() < deadline) {
      auto seen = coordinators_->wait(milliseconds(10));
      for (const ChildEnd& child : children_.reap()) {
        if (std::erase(workers_, child.pid) == 0) continue;
        if (child.status > 0 && child.status < 128) worst = std::max(worst, child.status);
      }
      if (pending_signal() != 0) break;
    }
    return worst;
  }

  const RunOptions options_;
  Prepared run_;
  Spectator spectator_;
  Children children_;  // before what starts processes: it outlives them
  std::unique_ptr<Coordinators> coordinators_;
  std::vector<pid_t> workers_;  // their guards
  std::optional<JobEnded> end_;
  int signal_ = 0;
  int last_status_ = 0;                        // the worst of workers that ended by themselves
  std::optional<Clock::time_point> alone_at_;  // since when no worker of ours is left
};

}  // namespace

int run(RunOptions options) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error of the write, as a full disk is
  block_ending_signals();      // looked for between events
  auto prepared = prepare(options);
  if (!prepared) return fail(prepared.error());
  Run whole(std::move(options), std::move(prepared).value());
  auto code = whole.go();
  return code ? code.value() : fail(code.error());
}

}  // namespace starling::tools
