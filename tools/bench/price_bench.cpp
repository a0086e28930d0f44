// This measures the price of fault tolerance in an undisturbed run: where
// the time of a step goes beyond computing, and how many bytes are sent.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "core/base/aead.h"
#include "core/formats/job_file.h"
#include "core/job/job.h"
#include "tools/bench/bench.h"
#include "tools/bench/figures.h"
#include "tools/bench/live_run.h"
#include "tools/bench/step_times.h"
#include "tools/starling/exit.h"

namespace starling::bench {
namespace {

constexpr std::size_t kTagged = 256 * 1024;  // bytes of a frame, about

using WorkersTimes = std::vector<std::vector<actors::StepTimes>>;

// Gives each worker one micro-batch of the same length, so that none waits for a busier one.
Result<Job> job_of(const PriceOptions& options) {
  STARLING_TRY(job, load_job(options.job));
  auto* synthetic = std::get_if<SyntheticSpec>(&job.model);
  if (!synthetic) return Error(Code::kBadInput, "price needs a synthetic model; " + options.job);
  synthetic->compute_ms = options.compute_ms;
  synthetic->jitter = 0;
  synthetic->slow.clear();
  job.micro_batches = options.workers;
  job.steps = options.steps;
  job.elastic.start_timeout_ms = std::max(job.elastic.start_timeout_ms, kStart_ms);
  return parse_job(format_job(job), "/");
}

// Makes a whole run with so many replicas; returns each worker's times.
Result<WorkersTimes> times_of_run(const Job& job, const PriceOptions& options,
                                  std::uint32_t replicas) {
  LiveRun run("price");
  const std::string path = run.folder() + "/job.toml";
  std::ofstream file(path);
  file << format_job(job);
  file.close();
  if (!file) return Error(Code::kBadInput, "cannot write " + path);
  STARLING_TRY(run.start(path, options.workers, job.steps,
                         {"--start", "0", "--replicas", std::to_string(replicas)}));
  STARLING_TRY(run.wait_for("its first event", [&] { return run.story().started; }));
  std::vector<std::string> files;
  for (std::uint32_t i = 0; i < options.workers; ++i) {
    files.push_back(run.folder() + "/" + std::to_string(i) + ".csv");
    STARLING_TRY(run.join({"--times", files.back()}));
  }
  STARLING_TRY(run.end());
  STARLING_TRY(run.each_once());
  WorkersTimes times;
  for (const std::string& name : files) {
    STARLING_TRY(loaded, load_step_times(name));
    times.push_back(std::move(loaded));
  }
  return times;
}

// Returns the bytes a second of a frame's tags: the fastest of some rounds, as no process disturbs.
double tag_rate() {
  const std::vector<std::uint8_t> bytes(kTagged, 0x5a);
  Aead aead(AeadKey{}, Aead::Way::kSeal);
  double fastest = 0;
  for (int i = 0; i < 50; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    aead.begin();
    aead.cover(bytes);
    aead.tag();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    fastest = std::max(fastest, double(kTagged) / took.count());
  }
  return fastest;
}

class Report {
 public:
  Report(const PriceOptions& options, const Job& job, const WorkersTimes& with,
         const WorkersTimes& without)
      : options_(options),
        parts_(step_parts(with, kWarmUp)),
        work_(step_parts(with, kWarmUp, Of::kWork)) {
    step_ms_ = at(
        parts_, [](const StepParts& p) { return p.step(); }, 0.5);
    bytes_with_ = bytes_a_step(with, kWarmUp);
    bytes_without_ = bytes_a_step(without, kWarmUp);
    const auto alone = step_parts(without, kWarmUp);
    std::vector<double> steps;
    for (const StepParts& p : alone) steps.push_back(p.step());
    step_without_ms_ = quantile(std::move(steps), 0.5);
    predicted_ = predicted_bytes(std::get<SyntheticSpec>(job.model).parameters, options_.workers);
  }

  void write(std::uint32_t replicas) const {
    if (!options_.json) {
      std::fprintf(options_.out, "%u workers, %zu steps of %.1f ms of computing, %u replicas\n",
                   options_.workers, parts_.size(), options_.compute_ms, replicas);
      std::fprintf(options_.out, "%-22s %9s %9s %9s %9s\n", "part of a step", "median ms", "p99 ms",
                   "of step", "work ms");
    }
    part("step", [](const StepParts& p) { return p.step(); });
    part("compute", [](const StepParts& p) { return p.compute; });
    part("hand-over", [](const StepParts& p) { return p.hand_over; });
    part("reduce", [](const StepParts& p) { return p.reduce; });
    part("norm", [](const StepParts& p) { return p.norm; });
    part("vote", [](const StepParts& p) { return p.vote; });
    part("vote until commit", [](const StepParts& p) { return p.commit; });
    part("apply", [](const StepParts& p) { return p.apply; });
    part("telling", [](const StepParts& p) { return p.telling; });
    part("gather", [](const StepParts& p) { return p.gather; });
    part("checksums", [](const StepParts& p) { return p.checksums; });
    part("vote and bookkeeping",
         [](const StepParts& p) { return p.vote + p.telling + p.hand_over; });
    write_bytes();
  }

 private:
  template <class Part>
  static double at(const std::vector<StepParts>& steps, Part part, double q) {
    std::vector<double> values;
    for (const StepParts& parts : steps) values.push_back(part(parts));
    return quantile(std::move(values), q);
  }

  template <class Part>
  void part(const char* name, Part of) const {
    const double typical = at(parts_, of, 0.5), high = at(parts_, of, 0.99);
    const double work = at(work_, of, 0.5);
    if (options_.json)
      std::fprintf(options_.out,
                   "{\"bench\":\"price\",\"workers\":%u,\"what\":\"%s\",\"n\":%zu,"
                   "\"median_ms\":%.4f,\"p99_ms\":%.4f,\"of_step\":%.4f,\"work_ms\":%.4f}\n",
                   options_.workers, name, parts_.size(), typical, high, typical / step_ms_, work);
    else
      std::fprintf(options_.out, "  %-20s %9.3f %9.3f %8.2f%% %9.3f\n", name, typical, high,
                   100 * typical / step_ms_, work);
  }

  // The sender of a frame makes its tags, and the receiver computes them again.
  void write_bytes() const {
    const double rate = tag_rate();
    const double frames_ms = rate > 0 ? 1000 * 2 * bytes_with_ / options_.workers / rate : 0;
    const double ratio = bytes_with_ / predicted_;
    if (options_.json) {
      std::fprintf(options_.out,
                   "{\"bench\":\"price\",\"workers\":%u,\"what\":\"bytes\",\"bytes\":%.0f,"
                   "\"predicted_bytes\":%.0f,\"ratio\":%.4f,\"without_replicas_bytes\":%.0f,"
                   "\"step_without_ms\":%.4f,\"frames_tags_ms_max\":%.4f}\n",
                   options_.workers, bytes_with_, predicted_, ratio, bytes_without_,
                   step_without_ms_, frames_ms);
      return;
    }
    std::fprintf(options_.out, "frames' tags: %.3f ms a worker at most (%.1f GB/s)\n", frames_ms,
                 rate / 1e9);
    std::fprintf(options_.out,
                 "bytes a step, all workers: %.2f MB with replicas, %.2f MB without; predicted "
                 "%.2f MB, ratio %.3f\n",
                 bytes_with_ / 1e6, bytes_without_ / 1e6, predicted_ / 1e6, ratio);
    std::fprintf(options_.out, "step without replicas %.3f ms\n", step_without_ms_);
    std::fprintf(options_.out,
                 "work: processor time of the busiest worker's own thread, whatever else ran\n"
                 "aims: vote and bookkeeping at most 1 %% of a step, bytes within 20 %% of what is "
                 "predicted\n");
  }

  const PriceOptions options_;
  const std::vector<StepParts> parts_, work_;
  double step_ms_ = 0, step_without_ms_ = 0;
  double bytes_with_ = 0, bytes_without_ = 0, predicted_ = 0;
};

Result<> measure(const PriceOptions& options) {
  STARLING_TRY(job, job_of(options));
  STARLING_TRY(with, times_of_run(job, options, job.replicas));
  STARLING_TRY(without, times_of_run(job, options, 0));
  const Report report(options, job, with, without);
  report.write(job.replicas);
  return ok();
}

}  // namespace

int bench_price(const PriceOptions& options) {
  const auto measured = measure(options);
  return measured ? 0 : tools::fail(measured.error());
}

}  // namespace starling::bench
