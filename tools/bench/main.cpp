// The program `starling-bench`: each benchmark is a subcommand with the options that it uses, and
// no others.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "actors/files.h"
#include "actors/scheduling.h"
#include "core/base/exit.h"
#include "core/base/result.h"
#include "core/base/standard_streams.h"
#include "core/formats/job_file.h"
#include "tools/bench/bench.h"
#include "tools/starling/command_line.h"
#include "tools/starling/exit.h"
#include "tools/starling/script_jobs.h"

namespace starling::bench {
namespace {

using tools::kWhole;

// Commands are the benchmarks with their options, as the command line fills them.
struct Commands {
  bool json = false, quick = false;
  BridgeOptions bridge;
  DeviceOptions device;
  RecoveryOptions recovery;
  ChangesOptions changes;
  PriceOptions price;
  TransportBenchOptions transport;
};

// A Benchmark is a subcommand and what it runs. `job`: where it reads one, else null.
struct Benchmark {
  CLI::App* sub;
  std::function<int()> run;
  std::string* job = nullptr;
};

constexpr const char* kUsualJob = "examples/synthetic/1m.toml";

void add_job(CLI::App* sub, std::string& job) {
  job = kUsualJob;
  sub->add_option("--job", job, "the job, a file or a script; the usual one lies below the sources")
      ->capture_default_str();
}

// The usual job is found where the sources are, and the installed program has none beside it.
Result<> check_usual_job(const Benchmark& benchmark) {
  std::error_code ignored;
  if (benchmark.sub->count("--job") > 0 || std::filesystem::exists(*benchmark.job, ignored))
    return ok();
  return Error(Code::kBadInput, std::string("no --job is given, and ") + kUsualJob +
                                    " of the sources, which is used then, is not below " +
                                    std::filesystem::current_path(ignored).string() +
                                    "; expected --job FILE, or the folder of the sources");
}

void add_workers(CLI::App* sub, std::uint32_t& workers, const char* what = "of the run") {
  sub->add_option("--workers", workers, what)->check(CLI::Range(2, 64))->capture_default_str();
}

void add_seed(CLI::App* sub, std::uint64_t& seed) {
  sub->add_option("--seed", seed, "draws the worker and the time")
      ->check(kWhole)
      ->capture_default_str();
}

void add_steps(CLI::App* sub, std::uint64_t& steps, const char* what) {
  sub->add_option("--steps", steps, what)->check(CLI::Range(10, 100'000))->capture_default_str();
}

void add_rounds(CLI::App* sub, std::uint32_t& rounds, const char* what) {
  sub->add_option("--rounds", rounds, what)->check(CLI::Range(1, 1000))->capture_default_str();
}

void add_isa(CLI::App* sub, std::string& isa) {
  sub->add_option("--isa", isa, "which device; auto is the processor")
      ->check(CLI::IsMember({"cuda", "auto", "emulated"}))
      ->capture_default_str();
}

CLI::App* add(CLI::App& app, const char* name, const char* what, const char* example, Commands& o) {
  CLI::App* sub = tools::subcommand(app, name, what, std::string("starling-bench ") + example);
  sub->add_flag("--json", o.json, "one JSON object a line");
  return sub;
}

CLI::App* with_quick(CLI::App* sub, Commands& o) {
  sub->add_flag("--quick", o.quick, "a few repetitions, to see that it runs");
  return sub;
}

Benchmark add_recovery(CLI::App& app, Commands& o) {
  CLI::App* sub = with_quick(
      add(app, "recovery", "How long a run pauses when a worker is lost, and where the time goes.",
          "recovery --workers 4 --losses 20", o),
      o);
  add_job(sub, o.recovery.job);
  add_workers(sub, o.recovery.workers);
  sub->add_option("--losses", o.recovery.losses, "workers lost, one after the other")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  add_seed(sub, o.recovery.seed);
  const auto kind = [&o](LossKind of) { return [&o, of] { o.recovery.kind = of; }; };
  auto* freeze =
      sub->add_flag_callback("--freeze", kind(LossKind::kFreeze), "SIGSTOP instead of SIGKILL");
  auto* cut = sub->add_flag_callback("--cut", kind(LossKind::kCut),
                                     "no packet passes to or from the worker (needs root)")
                  ->excludes(freeze);
  sub->add_flag_callback("--leader", kind(LossKind::kKillWithLeader),
                         "three coordinators, of which the leader is killed in the same instant")
      ->excludes(freeze)
      ->excludes(cut);
  return {sub,
          [&o] {
            if (o.quick) o.recovery.losses = std::min(o.recovery.losses, 3u);
            o.recovery.json = o.json;
            return bench_recovery(o.recovery);
          },
          &o.recovery.job};
}

Benchmark add_changes(CLI::App& app, Commands& o) {
  CLI::App* sub = with_quick(
      add(app, "changes", "What joins and announced leaves cost the others, all at once.",
          "changes --workers 4 --rounds 1", o),
      o);
  add_job(sub, o.changes.job);
  add_workers(sub, o.changes.workers, "before and after; in between there are twice as many");
  add_rounds(sub, o.changes.rounds, "of joins and leaves");
  return {sub,
          [&o] {
            if (o.quick) o.changes.rounds = 1, o.changes.quiet_steps = 6, o.changes.after_steps = 4;
            o.changes.json = o.json;
            return bench_changes(o.changes);
          },
          &o.changes.job};
}

Benchmark add_price(CLI::App& app, Commands& o) {
  CLI::App* sub = with_quick(add(app, "price", "What a step of a quiet run costs beyond computing.",
                                 "price --workers 4 --steps 100", o),
                             o);
  add_job(sub, o.price.job);
  add_workers(sub, o.price.workers);
  add_steps(sub, o.price.steps, "of the quiet run");
  return {sub,
          [&o] {
            if (o.quick) o.price.steps = std::min<std::uint64_t>(o.price.steps, 20);
            o.price.json = o.json;
            return bench_price(o.price);
          },
          &o.price.job};
}

Benchmark add_transport(CLI::App& app, Commands& o) {
  CLI::App* sub =
      with_quick(add(app, "transport", "The same job over TCP and from device to device (NCCL).",
                     "transport --job examples/gpt/tiny.toml --workers 3", o),
                 o);
  add_job(sub, o.transport.job);
  add_isa(sub, o.transport.isa);
  add_workers(sub, o.transport.workers);
  add_rounds(sub, o.transport.rounds, "of a join, a leave and a kill");
  add_steps(sub, o.transport.steps, "of each of the two quiet runs");
  add_seed(sub, o.transport.seed);
  return {sub,
          [&o] {
            if (o.quick) {
              o.transport.rounds = 1;
              o.transport.steps = std::min<std::uint64_t>(o.transport.steps, 60);
            }
            o.transport.json = o.json;
            return bench_transport(o.transport);
          },
          &o.transport.job};
}

Benchmark add_bridge(CLI::App& app, Commands& o) {
  CLI::App* sub =
      add(app, "bridge", "What a micro-batch of a script's model costs beside the script itself.",
          "bridge --job train.py", o);
  sub->add_option("--job", o.bridge.job, "the script")->required();
  add_steps(sub, o.bridge.passes, "passes of the model");
  return {sub,
          [&o] {
            o.bridge.json = o.json;
            return bench_bridge(o.bridge);
          },
          &o.bridge.job};
}

Benchmark add_device(CLI::App& app, Commands& o) {
  CLI::App* sub = with_quick(
      add(app, "device", "Whether a GPU repeats itself to the bit, and its tokens a second.",
          "device --speed", o),
      o);
  add_isa(sub, o.device.isa);
  auto* same = sub->add_flag("--same", o.device.same_only, "whether it repeats itself, alone");
  sub->add_flag("--speed", o.device.speed_only, "tokens a second, alone")->excludes(same);
  auto* fp32 = sub->add_flag_callback(
      "--fp32", [&o] { o.device.precision = Precision::kFp32; }, "in fp32 instead of bf16");
  sub->add_flag_callback(
         "--fp16", [&o] { o.device.precision = Precision::kFp16; }, "in fp16 instead of bf16")
      ->excludes(fp32);
  sub->add_flag("--llama", o.device.llama, "a Llama of GPT-2's size instead of GPT-2 124M");
  sub->add_option("--sequences", o.device.sequences, "of a micro-batch, for --speed and --tune")
      ->check(CLI::Range(1, 1024));
  sub->add_option("--threads", o.device.threads, "that compute, for --speed")
      ->check(CLI::Range(1, 8));
  sub->add_option("--micro-batches", o.device.micro_batches, "of a thread that are timed")
      ->check(CLI::Range(1, 100000));
  sub->add_option("--tune", o.device.tune,
                  "measure which algorithms of matrix products are fastest, into this file; with "
                  "STARLING_CUDA_PLANS workers take them from there");
  return {sub, [&o] {
            o.device.quick = o.quick;
            o.device.json = o.json;
            return bench_device(o.device);
          }};
}

std::vector<Benchmark> add_all(CLI::App& app, Commands& o) {
  const auto part = [&](const char* name, const char* what, const char* example,
                        int (*run)(const Options&)) {
    return Benchmark{with_quick(add(app, name, what, example, o), o), [&o, run] {
                       return run({o.json, o.quick, stdout});
                     }};
  };
  return {
      part("model", "Forward and backward of the built-in models, per instruction set.",
           "model --quick", bench_model),
      part("grid", "How exact the integer sums are, and what a step of them costs.", "grid --quick",
           bench_grid),
      part("allreduce", "An all-reduce between processes of this machine, beside a ring.",
           "allreduce --quick", bench_allreduce),
      add_recovery(app, o),
      add_changes(app, o),
      add_price(app, o),
      add_transport(app, o),
      add_bridge(app, o),
      add_device(app, o),
  };
}

int command(int argc, char** argv) {
  tools::end_with_a_line_on_exceptions();
  actors::run_promptly();
  actors::raise_open_files();
  CLI::App app{
      "Measures parts of Starling, and whole runs of it, on this machine. `starling-bench NAME "
      "--help` says more."};
  app.footer(
      "\nThose of whole runs start `starling` from the folder of this program and check that no "
      "step is lost.\nExit codes: 0 measured, 1 a check failed, 2 bad input, 3 to 5 as "
      "`starling`.");
  app.require_subcommand(1);
  app.get_formatter()->column_width(30);
  Commands commands;
  const auto benchmarks = add_all(app, commands);
  if (const auto ended = tools::parse(app, "starling-bench", {argv + 1, argv + argc}))
    return *ended;
  tools::ScriptJobs scripts({});
  for (const Benchmark& benchmark : benchmarks) {
    if (!benchmark.sub->parsed()) continue;
    if (benchmark.job != nullptr) {
      if (const auto there = check_usual_job(benchmark); !there) return tools::fail(there.error());
      if (auto written = scripts.take(*benchmark.job); !written)
        return tools::fail(written.error());
      if (const auto job = load_job(*benchmark.job); !job) return tools::fail(job.error());
    }
    return benchmark.run();
  }
  return kExitBadInput;
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  starling::open_closed_streams();
  return starling::tools::end_of_output(starling::bench::command(argc, argv));
}
