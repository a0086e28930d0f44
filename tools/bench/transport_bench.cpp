// This runs one job with its bytes over TCP and on the device
// transport: four runs, a quiet and a disturbed one for each.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "actors/worker/transport_support.h"
#include "core/formats/job_file.h"
#include "core/job/job.h"
#include "tools/bench/bench.h"
#include "tools/bench/figures.h"
#include "tools/bench/live_run.h"
#include "tools/bench/step_times.h"
#include "tools/starling/exit.h"

namespace starling::bench {
namespace {

constexpr std::size_t kCalm = 12;  // steps that are measured before each disturbance
constexpr std::size_t kSettled =
    5;  // steps, on the device transport if it is that, until it is calm

// A Way has the figures of one transport.
struct Way {
  actors::TransportChoice choice;  // of --transport
  std::string digest;
  double step_ms = 0, step_p99_ms = 0;
  double tcp_bytes = 0;            // a step, all workers together
  double device_share = 0;         // of the quiet run's steps
  std::vector<double> made_ms;     // from an epoch's first step to its first one on the device
  std::vector<double> made_steps;  // steps over TCP until then
  std::vector<double> kill_ms;     // the distance of commits around a kill, minus a step
  std::vector<double> joining, leaving;  // steps by an undisturbed one of as many workers

  bool on_device() const { return choice == actors::TransportChoice::kNccl; }
};

Result<Job> job_of(const TransportBenchOptions& options) {
  STARLING_TRY(job, load_job(options.job));
  job.isa = options.isa;
  job.steps = options.steps;
  job.elastic.start_timeout_ms = std::max(job.elastic.start_timeout_ms, kStart_ms);
  return parse_job(format_job(job), "/");
}

Result<std::string> write_job(const Job& job, const LiveRun& run) {
  const std::string name = run.folder() + "/job.toml";
  std::ofstream file(name);
  file << format_job(job);
  file.close();
  if (!file) return Error(Code::kBadInput, "cannot write " + name);
  return name;
}

// Notes, of epochs of several workers, how long the first step on the device took, in time and steps.
void note_transport(const judge::Story& story, Way& way) {
  for (const event::EpochFormed& epoch : story.epochs) {
    std::optional<double> begun;
    std::size_t before = 0;
    for (const auto& step : story.step_lines) {
      if (step.epoch != epoch.id) continue;
      if (!begun) begun = step.t;
      if (step.on_device) {
        way.made_ms.push_back(1000 * (step.t - *begun));
        way.made_steps.push_back(double(before));
        break;
      }
      ++before;
    }
  }
}

Result<> measure_quiet(const TransportBenchOptions& options, const Job& job, Way& way) {
  LiveRun run("transport");
  STARLING_TRY(name, write_job(job, run));
  STARLING_TRY(run.start(name, options.workers, job.steps, {"--start", "0"}));
  STARLING_TRY(run.wait_for("its first event", [&] { return run.story().started; }));
  std::vector<std::string> files;
  for (std::uint32_t i = 0; i < options.workers; ++i) {
    files.push_back(run.folder() + "/" + std::to_string(i) + ".csv");
    STARLING_TRY(run.join({"--times", files.back(), "--transport", name_of(way.choice)}));
  }
  STARLING_TRY(run.end());
  STARLING_TRY(run.each_once());
  std::vector<std::vector<actors::StepTimes>> times;
  for (const std::string& csv : files) {
    STARLING_TRY(loaded, load_step_times(csv));
    times.push_back(std::move(loaded));
  }
  const auto& steps = run.story().step_lines;
  std::vector<double> ms;
  std::size_t on_device = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    on_device += steps[i].on_device ? 1 : 0;
    if (i >= kWarmUp && steps[i].on_device == way.on_device())
      ms.push_back(1000 * (steps[i].t - steps[i - 1].t));
  }
  way.digest = to_string(run.story().done->digest);
  way.step_ms = quantile(ms, 0.5);
  way.step_p99_ms = quantile(std::move(ms), 0.99);
  way.tcp_bytes = bytes_a_step(times, kWarmUp);
  way.device_share = steps.empty() ? 0 : double(on_device) / double(steps.size());
  if (way.on_device() && 2 * on_device < steps.size())
    return Error(Code::kInternal, "over --transport nccl only " + std::to_string(on_device) +
                                      " of " + std::to_string(steps.size()) +
                                      " steps went from device to device; the log of a worker "
                                      "(starling run --log info) says why");
  note_transport(run.story(), way);
  return ok();
}

// A Disturbed run has one disturbance after the other, each from calm to calm.
class Disturbed {
 public:
  Disturbed(const TransportBenchOptions& options, const Job& job, Way& way)
      : options_(options), job_(job), way_(way), run_("transport"), draw_(options.seed) {}

  Result<> run() {
    STARLING_TRY(name, write_job(job_, run_));
    STARLING_TRY(
        run_.start(name, options_.workers, 1'000'000, {"--transport", name_of(way_.choice)}));
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
        std::fprintf(stderr, "\r--transport %s: %u of %u rounds ", name_of(way_.choice), i + 1,
                     options_.rounds);
    }
    if (!options_.json && isatty(STDERR_FILENO)) std::fprintf(stderr, "\n");
    note();
    return run_.each_once();
  }

 private:
  std::size_t told() const { return run_.story().step_lines.size(); }
  Result<pid_t> join() { return run_.join({"--transport", name_of(way_.choice)}); }

  // Waits until so many workers are there, no state moves, and the last steps went this way.
  Result<> settle(std::uint32_t workers) {
    STARLING_TRY(run_.settle(workers, kSettled));
    if (!way_.on_device()) return ok();
    return run_.wait_for("device steps", [&] {
      const auto& steps = run_.story().step_lines;
      return steps.size() >= kSettled &&
             std::all_of(steps.end() - kSettled, steps.end(),
                         [&](const auto& s) { return s.on_device && s.world == workers; });
    });
  }

  Result<> calm() {
    const std::size_t from = told();
    STARLING_TRY(run_.steps(kCalm));
    quiet_.push_back({from, told()});
    return ok();
  }

  Result<> lose_one() {
    const judge::Story& story = run_.story();
    const auto& members = story.epochs.back().members;
    const event::EpochMember victim = members[draw_() % members.size()];
    const double typical = median_step_ms(story, options_.workers);
    std::this_thread::sleep_for(
        std::chrono::duration<double, std::milli>(1.5 * typical * double(draw_() % 1000) / 1000));
    const double at = story.now();
    const auto pid = static_cast<pid_t>(run_.seen(victim.id, WorkerChange::kJoined).pid);
    if (pid == 0 || ::kill(pid, SIGKILL) != 0)
      return Error(Code::kInternal, "worker " + victim.name + " is not there to be killed");
    const std::uint32_t rest = options_.workers - 1;
    STARLING_TRY(run_.wait_for("the others go on", [&] {
      const auto& steps = story.step_lines;
      return std::count_if(steps.rbegin(), steps.rend(),
                           [&](const auto& s) { return s.t > at && s.world == rest; }) >= 4;
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
    note_transport(run_.story(), way_);
  }

  const TransportBenchOptions options_;
  const Job job_;
  Way& way_;
  LiveRun run_;
  std::mt19937_64 draw_;
  std::vector<Stretch> quiet_, joins_, leaves_;
};

// A Row is a figure of both times; none: it does not apply to that way.
struct Row {
  const char* what;
  const char* unit;
  std::size_t n;
  std::optional<double> tcp, nccl;
};

std::vector<Row> rows_of(const Way& tcp, const Way& nccl) {
  const auto both = [&](const char* what, const char* unit, std::vector<double> Way::*of,
                        double q) {
    return Row{what, unit, (nccl.*of).size(), quantile(tcp.*of, q), quantile(nccl.*of, q)};
  };
  return {
      {"step", "ms", 0, tcp.step_ms, nccl.step_ms},
      {"step p99", "ms", 0, tcp.step_p99_ms, nccl.step_p99_ms},
      {"device steps", "share", 0, tcp.device_share, nccl.device_share},
      {"bytes by TCP", "a step", 0, tcp.tcp_bytes, nccl.tcp_bytes},
      {"bytes off TCP", "a step", 0, std::nullopt, tcp.tcp_bytes - nccl.tcp_bytes},
      {"made", "ms", nccl.made_ms.size(), std::nullopt, quantile(nccl.made_ms, 0.5)},
      {"made, worst", "ms", nccl.made_ms.size(), std::nullopt, quantile(nccl.made_ms, 1)},
      {"steps until made", "median", nccl.made_steps.size(), std::nullopt,
       quantile(nccl.made_steps, 0.5)},
      both("kill", "ms", &Way::kill_ms, 0.5),
      both("kill, worst", "ms", &Way::kill_ms, 1),
      both("joining", "steps", &Way::joining, 0.5),
      both("joining, worst", "steps", &Way::joining, 1),
      both("leaving", "steps", &Way::leaving, 0.5),
      both("leaving, worst", "steps", &Way::leaving, 1),
  };
}

void report(const TransportBenchOptions& options, const Way& tcp, const Way& nccl) {
  if (!options.json)
    std::fprintf(options.out,
                 "%u workers on %s, %llu quiet steps each, digest %s both times\n%-18s %-7s %5s "
                 "%12s %12s %12s\n",
                 options.workers, options.isa.c_str(),
                 static_cast<unsigned long long>(options.steps), nccl.digest.c_str(), "figure",
                 "unit", "n", "tcp", "nccl", "nccl/tcp");
  const auto text = [&](const std::optional<double>& value, const char* form) {
    std::array<char, 40> buffer{};
    if (!value) return std::string(options.json ? "null" : "-");
    std::snprintf(buffer.data(), buffer.size(), form, *value);
    return std::string(buffer.data());
  };
  for (const Row& row : rows_of(tcp, nccl)) {
    std::optional<double> ratio;
    if (row.tcp && row.nccl && *row.tcp > 0) ratio = *row.nccl / *row.tcp;
    if (options.json)
      std::fprintf(options.out,
                   "{\"bench\":\"transport\",\"workers\":%u,\"isa\":\"%s\",\"what\":\"%s\","
                   "\"unit\":\"%s\",\"n\":%zu,\"tcp\":%s,\"nccl\":%s,\"ratio\":%s}\n",
                   options.workers, options.isa.c_str(), row.what, row.unit, row.n,
                   text(row.tcp, "%.4f").c_str(), text(row.nccl, "%.4f").c_str(),
                   text(ratio, "%.4f").c_str());
    else
      std::fprintf(options.out, "%-18s %-7s %5zu %12s %12s %12s\n", row.what, row.unit, row.n,
                   text(row.tcp, "%.2f").c_str(), text(row.nccl, "%.2f").c_str(),
                   text(ratio, "%.3f").c_str());
  }
  if (!options.json)
    std::fprintf(
        options.out,
        "made: from an epoch's first step to its first one on the device; kill: to the next "
        "commit, minus a step;\njoining, leaving: by an undisturbed step of as many "
        "workers on the same transport\n");
}

Result<> measure(const TransportBenchOptions& options) {
  STARLING_TRY(job, job_of(options));
  STARLING_TRY(actors::open_transport(job, actors::TransportChoice::kNccl));
  Way tcp{.choice = actors::TransportChoice::kTcp}, nccl{.choice = actors::TransportChoice::kNccl};
  for (Way* way : {&tcp, &nccl}) {
    STARLING_TRY(measure_quiet(options, job, *way));
  }
  if (tcp.digest != nccl.digest)
    return Error(Code::kCorrupt,
                 "digest " + tcp.digest + " over TCP, " + nccl.digest + " over NCCL");
  for (Way* way : {&tcp, &nccl}) {
    STARLING_TRY(Disturbed(options, job, *way).run());
  }
  report(options, tcp, nccl);
  return ok();
}

}  // namespace

int bench_transport(const TransportBenchOptions& options) {
  const auto measured = measure(options);
  return measured ? 0 : tools::fail(measured.error());
}

}  // namespace starling::bench
