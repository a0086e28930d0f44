// `starling replay` runs a job on machines that come and go as a spot trace tells.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "core/base/exit.h"
#include "core/formats/job_file.h"
#include "core/job/words.h"
#include "tools/chaos/command_line.h"
#include "tools/chaos/stage.h"
#include "tools/replay/replay_report.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"
#include "tools/starling/report_folder.h"
#include "tools/starling/resume.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kWorkersMax = 64;         // of `starling run`
constexpr std::uint64_t kReplayPaceSteps = 14;  // the first two of these are not measured
constexpr double kMoreSteps = 1.25;             // than the nodes can do as measured: a machine may
                                                // be that much faster later
constexpr std::uint64_t kStart_ms = 180000;     // for many processes on few cores to join
constexpr milliseconds kReplayPoll{20};         // many processes are looked at on few cores
constexpr double kTraces_s = 2;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

class ReplayRun {
 public:
  ReplayRun(const ReplayCommand& command, std::string folder)
      : command_(command), folder_(std::move(folder)) {}

  Result<int> go() {
    const auto begun = Clock::now();
    STARLING_TRY(prepare());
    say_what_comes();
    STARLING_TRY(before, measure_rates("", report_.before));
    if (before != 0) return before;
    choose_steps();
    STARLING_TRY(write_file(path("plan.toml"), chaos::format_plan(plan_)));
    STARLING_TRY(replayed, replay());
    if (replayed != 0) return replayed;
    if (report_.run.evidence.loud.done) {
      STARLING_TRY(after, measure_rates("-after", report_.after));
      if (after != 0) return after;
    }
    STARLING_TRY(compared, run_undisturbed());
    if (compared != 0) return compared;
    report_.run.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    return conclude();
  }

 private:
  std::string path(const char* name) const { return (fs::path(folder_) / name).string(); }

  Result<> prepare() {
    STARLING_TRY(job, load_job(command_.job));
    job_ = std::move(job);
    if (command_.micro_batches) job_.micro_batches = *command_.micro_batches;
    if (command_.compute_ms) {
      auto* synthetic = std::get_if<SyntheticSpec>(&job_.model);
      if (!synthetic) return bad_input("--compute-ms is for a synthetic model, this is another");
      synthetic->compute_ms = *command_.compute_ms;
    }
    // The runs differ in their steps; the learning rate of a step must not.
    keep_schedules(job_, job_);
    job_.elastic.start_timeout_ms = std::max(job_.elastic.start_timeout_ms, kStart_ms);
    STARLING_TRY(checked, parse_job(format_job(job_), "/"));  // as the file's values are
    job_ = std::move(checked);
    STARLING_TRY(trace, replay::load_trace(command_.trace, command_.seed));
    STARLING_TRY(choose_stretch(replay::thinned(trace, command_.scale)));
    return write_file(path("job.toml"), format_job(job_));
  }

  Result<> choose_stretch(const replay::Trace& trace) {
    replay::Stretch& stretch = report_.stretch;
    STARLING_TRY(from, seconds_of("--from", command_.from));
    stretch.from_ms = static_cast<std::uint64_t>(std::llround(1000 * from));
    stretch.to_ms = trace.end_ms();
    if (!command_.to.empty()) {
      STARLING_TRY(to, seconds_of("--to", command_.to));
      stretch.to_ms = static_cast<std::uint64_t>(std::llround(1000 * to));
    }
    if (stretch.from_ms >= stretch.to_ms || stretch.to_ms > trace.end_ms())
      return bad_input("--from must be before --to, and --to at most the trace's end, " +
                       std::to_string(trace.end_ms() / 1000) + " s");
    stretch.speedup = command_.speedup;
    STARLING_TRY(notice, seconds_of("--notice", command_.notice));
    if (notice == 0) return bad_input("--notice must be more than 0; --unannounced gives none");
    stretch.notice_s = notice;
    if (command_.unannounced) stretch.notice_s.reset();
    report_.workers_most = trace.most(stretch.from_ms, stretch.to_ms);
    if (report_.workers_most > kWorkersMax)
      return bad_input("the trace has up to " + std::to_string(report_.workers_most) +
                       " nodes at once, at most " + std::to_string(kWorkersMax) +
                       " workers run here; expected --scale " +
                       std::to_string((report_.workers_most + kWorkersMax - 1) / kWorkersMax) +
                       " or more");
    STARLING_TRY(plan, replay::plan_of(trace, stretch));
    plan_ = std::move(plan);
    plan_.threads = command_.threads;
    plan_.coordinators = command_.coordinators;
    plan_.lease_ms = command_.lease_ms;
    plan_.replicas = command_.replicas;
    report_.nodes = replay::nodes_over_time(trace, stretch);
    if (command_.rate) report_.before = {{double(plan_.workers), *command_.rate}};
    return ok();
  }

  void say_what_comes() const {
    std::size_t joins = 0, removals = 0;
    for (const chaos::Fault& fault : plan_.faults)
      (fault.kind == &chaos::faults::kJoin ? joins : removals) += fault.count;
    char text[300];
    std::snprintf(text, sizeof text,
                  "trace: %.1f s of it in %.1f s; %u workers at first, at most %zu; %zu come, %zu "
                  "go%s; %u micro-batches a step, %.1f for each of the most workers",
                  double(report_.stretch.to_ms - report_.stretch.from_ms) / 1000,
                  report_.stretch.seconds(), plan_.workers, report_.workers_most, joins, removals,
                  command_.unannounced ? " unannounced" : "", job_.micro_batches,
                  double(job_.micro_batches) / double(report_.workers_most));
    say(text);
  }

  chaos::StageOptions stage_options() const {
    chaos::StageOptions options;
    options.job_path = path("job.toml");
    options.job = job_;
    options.plan = plan_;
    options.folder = folder_;
    options.disturber.workers_min = 0;
    options.disturber.workers_max = kWorkersMax;
    options.disturber.last_copies = true;
    if (report_.stretch.notice_s)
      options.disturber.notice_s = *report_.stretch.notice_s / report_.stretch.speedup;
    options.strangers = false;
    options.poll = kReplayPoll;
    options.traces_s = kTraces_s;
    options.log = command_.log;
    return options;
  }

  // Returns 0, or the exit code after a signal.
  template <class R>
  static Result<int> ended_by_signal(const chaos::Stage& stage, R&& result) {
    if (result) return 0;
    if (stage.signal() != 0) return 128 + stage.signal();
    return std::move(result).error();
  }

  Result<int> measure_rates(const std::string& when, std::vector<judge::Rate>& rates) {
    if (command_.rate) return 0;  // given
    double fewest = double(report_.workers_most);
    for (const judge::Point& point : report_.nodes)
      if (point.value > 0) fewest = std::min(fewest, point.value);
    for (const double workers : judge::sizes_between(fewest, double(report_.workers_most))) {
      auto options = stage_options();
      options.plan.workers = static_cast<std::uint32_t>(workers);
      chaos::Stage stage(std::move(options), say);
      auto story = stage.quiet("pace-" + std::to_string(int(workers)) + when, kReplayPaceSteps);
      STARLING_TRY(ended, ended_by_signal(stage, story));
      if (ended != 0) return ended;
      const auto& steps = story.value().step_lines;
      const double seconds = steps.back().t - steps[1].t;
      const double done = double(steps.size() - 2) * job_.micro_batches;
      rates.push_back({workers, done / seconds / workers});
      char text[120];
      std::snprintf(text, sizeof text,
                    "undisturbed: %.0f workers, %.2f micro-batches a second each, a step %.0f ms",
                    workers, rates.back().per_worker, 1000 * seconds / double(steps.size() - 2));
      say(text);
    }
    return 0;
  }

  void choose_steps() {
    const double most =
        judge::possible(report_.nodes, report_.before, 0, report_.stretch.seconds());
    plan_.steps = command_.steps.value_or(
        kReplayPaceSteps +
        static_cast<std::uint64_t>(std::ceil(kMoreSteps * most / job_.micro_batches)));
    say("replay: " + std::to_string(plan_.steps) + " steps");
  }

  Result<int> replay() {
    chaos::Stage stage(stage_options(), say);
    auto evidence = stage.disturbed();
    STARLING_TRY(ended, ended_by_signal(stage, evidence));
    if (ended == 0) report_.run.evidence = std::move(evidence).value();
    return ended;
  }

  // Runs the same steps with one worker, no faults and no
  // simulated compute time: none of this may change a bit.
  Result<int> run_undisturbed() {
    judge::Evidence& evidence = report_.run.evidence;
    evidence.reference_digest = command_.reference;
    if (!command_.reference.empty() || !evidence.loud.done) return 0;
    Job still = job_;
    if (auto* synthetic = std::get_if<SyntheticSpec>(&still.model)) synthetic->drop_idle();
    STARLING_TRY(write_file(path("undisturbed.toml"), format_job(still)));
    auto options = stage_options();
    options.job_path = path("undisturbed.toml");
    options.plan.workers = 1;
    options.plan.coordinators = 1;
    options.plan.threads = std::max(1u, std::thread::hardware_concurrency());
    say("undisturbed: the same steps with one worker");
    chaos::Stage stage(std::move(options), say);
    auto story = stage.quiet("undisturbed", plan_.steps);
    STARLING_TRY(ended, ended_by_signal(stage, story));
    if (ended != 0) return ended;
    evidence.quiet = std::move(story).value();
    evidence.reference_digest = to_string(evidence.quiet->done->digest);
    return 0;
  }

  std::string repeat() const {
    using job_words::number_text;
    chaos::CommandLine line({"starling", "replay", command_.named, "--trace", command_.trace});
    line.add({"--speedup", number_text(command_.speedup), "--from", command_.from});
    const auto add = [&](const char* option, const auto& value) {
      line.add({option, std::to_string(value)});
    };
    if (!command_.to.empty()) line.add({"--to", command_.to});
    if (command_.scale != 1) add("--scale", command_.scale);
    if (command_.seed != 1) add("--seed", command_.seed);
    if (command_.unannounced)
      line.add({"--unannounced"});
    else
      line.add({"--notice", command_.notice});
    if (command_.micro_batches) add("--micro-batches", *command_.micro_batches);
    if (command_.compute_ms) line.add({"--compute-ms", number_text(*command_.compute_ms)});
    if (command_.replicas) add("--replicas", *command_.replicas);
    if (command_.lease_ms) add("--lease-ms", *command_.lease_ms);
    if (command_.threads != 1) add("--threads", command_.threads);
    if (command_.coordinators != 1) add("--coordinators", command_.coordinators);
    if (command_.rate) line.add({"--rate", number_text(*command_.rate)});
    add("--steps", plan_.steps);
    if (!command_.reference.empty()) line.add({"--reference", command_.reference});
    if (command_.goodput_min > 0) line.add({"--min-goodput", number_text(command_.goodput_min)});
    line.add({"--out", folder_ + "-again"});
    if (!command_.arguments.empty()) line.add({"--"});
    for (const std::string& argument : command_.arguments) line.add({argument});
    return line.text();
  }

  Result<int> conclude() {
    report_.run.job = job_.name;
    report_.run.plan = plan_;
    report_.run.repeat = repeat();
    report_.trace = command_.trace;
    report_.scale = command_.scale;
    report_.goodput_min = command_.goodput_min;
    replay::conclude(report_);
    STARLING_TRY(write_file(path("report.json"), replay::report_json(report_)));
    STARLING_TRY(write_file(path("report.html"), replay::report_html(report_)));
    std::printf("%s", replay::summary(report_).c_str());
    const bool held = replay::failures(report_).empty();
    std::printf("%s; report in %s\n", held ? "held" : "BROKEN", folder_.c_str());
    return held ? 0 : 1;
  }

  const ReplayCommand command_;
  const std::string folder_;
  Job job_;
  chaos::Plan plan_;
  replay::ReplayReport report_;
};

Result<int> replay_command(const ReplayCommand& command) {
  STARLING_TRY(folder, ReportFolder::make(command.out));
  return ReplayRun(command, folder.path()).go();
}

}  // namespace

int replay(const ReplayCommand& command) {
  // An error is no verdict: the demand cannot be tested.
  auto code = replay_command(command);
  return code ? code.value() : fail(kExitBadInput, code.error().text());
}

}  // namespace starling::tools
