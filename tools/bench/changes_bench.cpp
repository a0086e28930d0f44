// This measures what joins and announced leaves cost: W workers, twice as many, W again, in a run.

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "tools/bench/bench.h"
#include "tools/bench/figures.h"
#include "tools/bench/live_run.h"
#include "tools/starling/exit.h"

namespace starling::bench {
namespace {

struct Named {
  const char* name;
  std::vector<Stretch> stretches;  // one a round
};

class Changes {
 public:
  explicit Changes(const ChangesOptions& options) : options_(options), run_("changes") {}

  Result<> run() {
    const std::uint32_t few = options_.workers, many = 2 * few;
    STARLING_TRY(run_.start(options_.job, few, 1'000'000));
    STARLING_TRY(run_.settle(few));
    for (std::uint32_t i = 0; i < options_.rounds; ++i) {
      STARLING_TRY(measure_quiet());
      STARLING_TRY(guards, join(few));
      STARLING_TRY(change(joining_, after_joins_, many));
      STARLING_TRY(measure_quiet());
      for (const pid_t guard : guards)
        if (::kill(guard, SIGTERM) != 0)
          return Error(Code::kInternal, "a worker's guard is not there to be told to leave");
      STARLING_TRY(change(leaving_, after_leaves_, few));
      if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r%u of %u rounds ", i + 1, options_.rounds);
    }
    if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\n");
    const auto& workers = run_.story().workers;
    lost_ = static_cast<std::size_t>(
        std::ranges::count(workers, WorkerChange::kLost, &event::WorkerChanged::what));
    for (const event::EpochFormed& epoch : run_.story().epochs)
      if (epoch.kind == PlanKind::kForced)
        std::fprintf(stderr, "epoch %s was forced: %s\n", to_string(epoch.id).c_str(),
                     epoch.cause.c_str());
    return run_.each_once();
  }

  void report() const {
    const QuietSteps quiet(run_.story(), quiet_);
    if (!options_.json) {
      std::fprintf(options_.out, "%u workers, %u more, %u again, %u times; undisturbed step",
                   options_.workers, options_.workers, options_.workers, options_.rounds);
      for (const auto& [n, ms] : quiet.measured())
        std::fprintf(options_.out, " %.1f ms by %u;", ms, n);
      std::fprintf(options_.out, " %zu workers lost\n", lost_);
      std::fprintf(options_.out, "%-14s %6s %10s %24s %7s %7s\n", "steps", "n", "median ms",
                   "by undisturbed: median", "worst", "epochs");
    }
    for (const Named* named : {&joining_, &after_joins_, &leaving_, &after_leaves_})
      report(*named, quiet);
    if (!options_.json)
      std::fprintf(options_.out, "aims: medians within 5 %%, no step above 1.5, nothing forced\n");
  }

 private:
  std::size_t told() const { return run_.story().step_lines.size(); }

  Result<> measure_quiet() {
    const std::size_t from = told();
    STARLING_TRY(run_.steps(options_.quiet_steps));
    quiet_.push_back({from, told()});
    return ok();
  }

  Result<std::vector<pid_t>> join(std::uint32_t count) {
    std::vector<pid_t> guards;
    for (std::uint32_t i = 0; i < count; ++i) {
      STARLING_TRY(guard, run_.join());
      guards.push_back(guard);
    }
    return guards;
  }

  // Waits until so many workers are there and all moves are over, then measures the steps after.
  Result<> change(Named& changing, Named& after, std::uint32_t workers) {
    const std::size_t from = told();
    STARLING_TRY(settled, run_.settle(workers, options_.after_steps));
    changing.stretches.push_back({from, settled});
    after.stretches.push_back({settled, told()});
    return ok();
  }

  void report(const Named& named, const QuietSteps& quiet) const {
    ChangeFigures all;
    for (const Stretch& stretch : named.stretches) {
      const ChangeFigures figures = change_figures(run_.story(), stretch, quiet);
      all.ms.insert(all.ms.end(), figures.ms.begin(), figures.ms.end());
      all.ratios.insert(all.ratios.end(), figures.ratios.begin(), figures.ratios.end());
      all.epochs += figures.epochs;
      all.forced += figures.forced;
    }
    const double median = quantile(all.ratios, 0.5), worst = quantile(all.ratios, 1);
    if (options_.json) {
      std::fprintf(options_.out,
                   "{\"bench\":\"changes\",\"workers\":%u,\"what\":\"%s\",\"n\":%zu,"
                   "\"median_ms\":%.2f,\"median_ratio\":%.4f,\"worst_ratio\":%.4f,"
                   "\"epochs\":%zu,\"forced\":%zu,\"lost\":%zu}\n",
                   options_.workers, named.name, all.ms.size(), quantile(all.ms, 0.5), median,
                   worst, all.epochs, all.forced, lost_);
      return;
    }
    std::fprintf(options_.out, "%-14s %6zu %10.1f %24.3f %7.3f %7zu, forced %zu\n", named.name,
                 all.ms.size(), quantile(all.ms, 0.5), median, worst, all.epochs, all.forced);
  }

  const ChangesOptions options_;
  LiveRun run_;
  std::vector<Stretch> quiet_;
  Named joining_{"while joining", {}}, after_joins_{"after joins", {}};
  Named leaving_{"while leaving", {}}, after_leaves_{"after leaves", {}};
  std::size_t lost_ = 0;
};

}  // namespace

int bench_changes(const ChangesOptions& options) {
  Changes bench(options);
  const auto ran = bench.run();
  if (ran) bench.report();
  return ran ? 0 : tools::fail(ran.error());
}

}  // namespace starling::bench
