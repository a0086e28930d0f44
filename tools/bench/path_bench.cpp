// This runs one job with its bytes over the hosts and from device
// to device: four runs, a quiet and a disturbed one each way.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "actors/worker/paths.h"
#include "core/job/job.h"
#include "tools/bench/bench.h"
#include "tools/bench/figures.h"
#include "tools/bench/live_run.h"
#include "tools/bench/step_times.h"
#include "tools/starling/exit.h"

namespace starling::bench {
namespace {

constexpr std::size_t kWarmUp = 5;   // steps that are not counted
constexpr std::size_t kCalm = 12;    // steps that are measured before each disturbance
constexpr std::size_t kSettled = 5;  // steps, direct ones on a direct path, until it is calm
constexpr std::uint64_t kStart_ms = 180'000;  // for many processes on few cores to join

// A Way has the figures of one way.
struct Way {
  const char* rule;  // of --path
  std::string digest;
  double step_ms = 0, step_p99_ms = 0;
  double tcp_bytes = 0;                  // a step, all workers together
  double direct_share = 0;               // of the quiet run's steps
  std::vector<double> made_ms;           // from an epoch's first step to its first direct one
  std::vector<double> made_steps;        // steps over the hosts until then
  std::vector<double> kill_ms;           // the distance of commits around a kill, minus a step
  std::vector<double> joining, leaving;  // steps by an undisturbed one of as many workers

  bool direct() const { return rule == std::string_view("direct"); }
};

Result<Job> job_of(const PathOptions& options) {
  STARLING_TRY(job, load_job(options.job));
  job.isa = options.isa;
  job.steps = options.steps;
  job.start_timeout_ms = std::max(job.start_timeout_ms, kStart_ms);
  return parse_job(format_job(job), "/");
}

Result<std::string> write_job(const Job& job, const LiveRun& run) {
  const std::string path = run.folder() + "/job.toml";
  std::ofstream file(path);
  file << format_job(job);
  file.close();
  if (!file) return Error(Code::kBadInput, "cannot write " + path);
  return path;
}

// Notes, of epochs of several workers, how long the first direct step took, in time and steps.
void note_paths(const chaos::Story& story, Way& way) {
  for (const chaos::EpochSeen& epoch : story.epochs) {
    std::optional<double> begun;
    std::size_t before = 0;
    for (const auto& [version, step] : story.step_lines) {
      if (step.epoch != epoch.id) continue;
      if (!begun) begun = step.t;
      if (step.direct) {
        way.made_ms.push_back(1000 * (step.t - *begun));
        way.made_steps.push_back(double(before));
        break;
      }
      ++before;
    }
  }
}

Result<> measure_quiet(const PathOptions& options, const Job& job, Way& way) {
  LiveRun run("path");
  STARLING_TRY(path, write_job(job, run));
  STARLING_TRY(run.start(path, options.workers, job.steps, {"--start", "0"}));
  STARLING_TRY(run.wait_for("its first event", [&] { return run.story().started; }));
  std::vector<std::string> files;
  for (std::uint32_t i = 0; i < options.workers; ++i) {
    files.push_back(run.folder() + "/" + std::to_string(i) + ".csv");
    STARLING_TRY(run.join({"--times", files.back(), "--path", way.rule}));
  }
  STARLING_TRY(run.end());
  STARLING_TRY(run.each_once());
  std::vector<std::vector<actors::StepTimes>> times;
  for (const std::string& name : files) {
    STARLING_TRY(loaded, load_step_times(name));
    times.push_back(std::move(loaded));
  }
  const auto& steps = run.story().step_lines;
  std::vector<double> ms;
  std::size_t direct = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    direct += steps[i].second.direct ? 1 : 0;
    if (i >= kWarmUp && steps[i].second.direct == way.direct())
      ms.push_back(1000 * (steps[i].second.t - steps[i - 1].second.t));
  }
  way.digest = run.story().done->digest;
  way.step_ms = quantile(ms, 0.5);
  way.step_p99_ms = quantile(std::move(ms), 0.99);
  way.tcp_bytes = bytes_a_step(times, kWarmUp);
  way.direct_share = steps.empty() ? 0 : double(direct) / double(steps.size());
  if (way.direct() && 2 * direct < steps.size())
    return Error(Code::kInternal, "over --path direct only " + std::to_string(direct) + " of " +
                                      std::to_string(steps.size()) +
                                      " steps were direct; the log of a worker "
                                      "(starling run --log info) says why");
  note_paths(run.story(), way);
  return ok();
}

// A Disturbed run has one disturbance after the other, each from calm to calm.
class Disturbed {
 public:
  Disturbed(const PathOptions& options, const Job& job, Way& way)
      : options_(options), job_(job), way_(way), run_("path"), draw_(options.seed) {}

  Result<> run() {
    STARLING_TRY(path, write_job(job_, run_));
    STARLING_TRY(run_.start(path, options_.workers, 1'000'000, {"--path", way_.rule}));
    STARLING_TRY(settle(options_.workers));
    for (std::uint32_t i = 0; i < options_.rounds; ++i) {
      STARLING_TRY(calm());
      std::size_t from = told();
      STARLING_TRY(guard, join());
      STARLING_TRY(settle(options_.workers + 1));
      joins_.push_back({from, told()});
      STARLING_TRY(calm());
      from = told();
      if (::kill(guard, SIGTERM) != 0)
        return Error(Code::kInternal, "a worker's guard is not there to be told to leave");
      STARLING_TRY(settle(options_.workers));
      leaves_.push_back({from, told()});
      STARLING_TRY(calm());
      STARLING_TRY(lose_one());
      STARLING_TRY(join());
      STARLING_TRY(settle(options_.workers));
      if (!options_.json && isatty(STDERR_FILENO))
        std::fprintf(stderr, "\r--path %s: %u of %u rounds ", way_.rule, i + 1, options_.rounds);
    }
    if (!options_.json && isatty(STDERR_FILENO)) std::fprintf(stderr, "\n");
    note();
    return run_.each_once();
  }

 private:
  std::size_t told() const { return run_.story().step_lines.size(); }
  Result<pid_t> join() { return run_.join({"--path", way_.rule}); }

  // Waits until so many workers are there, no state moves, and the last steps went this way.
  Result<> settle(std::uint32_t workers) {
    STARLING_TRY(run_.settle(workers, kSettled));
    if (!way_.direct()) return ok();
    return run_.wait_for("direct steps", [&] {
      const auto& steps = run_.story().step_lines;
      return steps.size() >= kSettled &&
             std::all_of(steps.end() - kSettled, steps.end(), [&](const auto& s) {
               return s.second.direct && s.second.world == workers;
             });
    });
  }

  Result<> calm() {
    const std::size_t from = told();
    STARLING_TRY(run_.steps(kCalm));
    quiet_.push_back({from, told()});
    return ok();
  }

  Result<> lose_one() {
    const chaos::Story& story = run_.story();
    const auto& members = story.epochs.back().members;
    const chaos::MemberSeen victim = members[draw_() % members.size()];
    const double typical = median_step_ms(story, options_.workers);
    std::this_thread::sleep_for(
        std::chrono::duration<double, std::milli>(1.5 * typical * double(draw_() % 1000) / 1000));
    const double at = story.now();
    const pid_t pid = run_.seen(victim.id, "joined").pid;
    if (pid == 0 || ::kill(pid, SIGKILL) != 0)
      return Error(Code::kInternal, "worker " + victim.name + " is not there to be killed");
    const std::uint32_t rest = options_.workers - 1;
    STARLING_TRY(run_.wait_for("the others go on", [&] {
      const auto& steps = story.step_lines;
      return std::count_if(steps.rbegin(), steps.rend(), [&](const auto& s) {
               return s.second.t > at && s.second.world == rest;
             }) >= 4;
    }));
    way_.kill_ms.push_back(gap_after(story, at, rest).to_world - typical);
    return ok();
  }

  void note() {
    const QuietSteps quiet(run_.story(), quiet_);
    const auto add = [&](const std::vector<Stretch>& stretches, std::vector<double>& to) {
      for (const Stretch& stretch : stretches) {
        const auto ratios = change_figures(run_.story(), stretch, quiet).ratios;
        to.insert(to.end(), ratios.begin(), ratios.end());
      }
    };
    add(joins_, way_.joining);
    add(leaves_, way_.leaving);
    note_paths(run_.story(), way_);
  }

  const PathOptions options_;
  const Job job_;
  Way& way_;
  LiveRun run_;
  std::mt19937_64 draw_;
  std::vector<Stretch> quiet_, joins_, leaves_;
};

// A Row is a figure of both ways; none: it does not apply to that way.
struct Row {
  const char* what;
  const char* unit;
  std::size_t n;
  std::optional<double> host, direct;
};

std::vector<Row> rows_of(const Way& host, const Way& direct) {
  const auto both = [&](const char* what, const char* unit, std::vector<double> Way::*of,
                        double q) {
    return Row{what, unit, (direct.*of).size(), quantile(host.*of, q), quantile(direct.*of, q)};
  };
  return {
      {"step", "ms", 0, host.step_ms, direct.step_ms},
      {"step p99", "ms", 0, host.step_p99_ms, direct.step_p99_ms},
      {"direct steps", "share", 0, host.direct_share, direct.direct_share},
      {"bytes by TCP", "a step", 0, host.tcp_bytes, direct.tcp_bytes},
      {"bytes off TCP", "a step", 0, std::nullopt, host.tcp_bytes - direct.tcp_bytes},
      {"path made", "ms", direct.made_ms.size(), std::nullopt, quantile(direct.made_ms, 0.5)},
      {"path made, worst", "ms", direct.made_ms.size(), std::nullopt, quantile(direct.made_ms, 1)},
      {"steps until made", "median", direct.made_steps.size(), std::nullopt,
       quantile(direct.made_steps, 0.5)},
      both("kill", "ms", &Way::kill_ms, 0.5),
      both("kill, worst", "ms", &Way::kill_ms, 1),
      both("joining", "steps", &Way::joining, 0.5),
      both("joining, worst", "steps", &Way::joining, 1),
      both("leaving", "steps", &Way::leaving, 0.5),
      both("leaving, worst", "steps", &Way::leaving, 1),
  };
}

void report(const PathOptions& options, const Way& host, const Way& direct) {
  if (!options.json)
    std::fprintf(options.out,
                 "%u workers on %s, %llu quiet steps each way, digest %s both ways\n%-18s %-7s %5s "
                 "%12s %12s %12s\n",
                 options.workers, options.isa.c_str(),
                 static_cast<unsigned long long>(options.steps), direct.digest.c_str(), "figure",
                 "unit", "n", "host", "direct", "direct/host");
  const auto text = [&](const std::optional<double>& value, const char* form) {
    std::array<char, 40> buffer{};
    if (!value) return std::string(options.json ? "null" : "-");
    std::snprintf(buffer.data(), buffer.size(), form, *value);
    return std::string(buffer.data());
  };
  for (const Row& row : rows_of(host, direct)) {
    std::optional<double> ratio;
    if (row.host && row.direct && *row.host > 0) ratio = *row.direct / *row.host;
    if (options.json)
      std::fprintf(options.out,
                   "{\"bench\":\"path\",\"workers\":%u,\"isa\":\"%s\",\"what\":\"%s\","
                   "\"unit\":\"%s\",\"n\":%zu,\"host\":%s,\"direct\":%s,\"ratio\":%s}\n",
                   options.workers, options.isa.c_str(), row.what, row.unit, row.n,
                   text(row.host, "%.4f").c_str(), text(row.direct, "%.4f").c_str(),
                   text(ratio, "%.4f").c_str());
    else
      std::fprintf(options.out, "%-18s %-7s %5zu %12s %12s %12s\n", row.what, row.unit, row.n,
                   text(row.host, "%.2f").c_str(), text(row.direct, "%.2f").c_str(),
                   text(ratio, "%.3f").c_str());
  }
  if (!options.json)
    std::fprintf(options.out,
                 "path made: from an epoch's first step to its first direct one; kill: to the next "
                 "commit, minus a step;\njoining, leaving: by an undisturbed step of as many "
                 "workers on the same way\n");
}

Result<> measure(const PathOptions& options) {
  STARLING_TRY(job, job_of(options));
  STARLING_TRY(actors::open_paths(job, actors::PathRule::kDirect));
  Way host{.rule = "host"}, direct{.rule = "direct"};
  for (Way* way : {&host, &direct}) {
    STARLING_TRY(measure_quiet(options, job, *way));
  }
  if (host.digest != direct.digest)
    return Error(Code::kCorrupt, "digest " + host.digest + " over the hosts, " + direct.digest +
                                     " over direct paths");
  for (Way* way : {&host, &direct}) {
    STARLING_TRY(Disturbed(options, job, *way).run());
  }
  report(options, host, direct);
  return ok();
}

}  // namespace

int bench_path(const PathOptions& options) {
  const auto measured = measure(options);
  return measured ? 0 : tools::fail(measured.error());
}

}  // namespace starling::bench
