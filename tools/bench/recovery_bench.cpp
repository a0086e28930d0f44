// This measures how long a run pauses when a worker is killed or frozen, by the worker's phase,
// and where the time goes. A run is disturbed again and again; a new worker makes each loss good.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "actors/make_model.h"
#include "core/formats/job_file.h"
#include "core/job/job.h"
#include "tools/bench/bench.h"
#include "tools/bench/figures.h"
#include "tools/bench/live_run.h"
#include "tools/chaos/network.h"
#include "tools/starling/exit.h"

namespace starling::bench {
namespace {

constexpr double kBeyondElection_ms = 200;  // a loss of leader and worker may cost so much more

struct KindWords {
  const char* one;
  const char* many;
  const char* phase;  // of the lost worker; null: as its guard told
};
KindWords words_of(LossKind kind) {
  switch (kind) {
    case LossKind::kKill:
      return {"kill", "kills", nullptr};
    case LossKind::kFreeze:
      return {"freeze", "freezes", "frozen"};
    case LossKind::kCut:
      return {"cut", "cuts", "cut off"};
    case LossKind::kKillWithLeader:
      return {"kill with the leader", "kills of a worker and the leader", nullptr};
  }
  return {};
}

// A Loss is one loss of a worker, and its cost. Milliseconds.
struct Loss {
  std::string phase;       // what the worker was at
  double gap = 0;          // from the last commit with the worker to the first without it
  double longest = 0;      // longest distance of two commits from the loss to the fourth after it
  double detect = 0;       // kill to the stop of the member that passed first
  std::size_t epochs = 0;  // plans until it was made good
  std::optional<Pause> pause;
};

// A Wire is the network's own time: a step's sums to their owners, as many bytes back.
struct Wire {
  double megabytes = 0;  // of sums
  double ms = 0;
};

// Forks: call it before there are threads.
Result<Wire> measure_wire(const Job& job, std::uint32_t workers) {
  STARLING_TRY(model, actors::make_model(job));
  std::uint64_t bytes = 0;
  for (const TensorSpec& tensor : model->tensors()) bytes += 4 * tensor.elements();
  STARLING_TRY(ms, all_reduce_ms(workers, bytes));
  return Wire{static_cast<double>(bytes) / 1e6, ms};
}

class RecoveryBench {
 public:
  // `network`: where the workers of cuts live.
  RecoveryBench(const RecoveryOptions& options, std::uint64_t lease_ms, const Wire& wire,
                std::unique_ptr<chaos::Network> network)
      : options_(options),
        lease_ms_(lease_ms),
        wire_(wire),
        network_(std::move(network)),
        run_("recovery"),
        draw_(options.seed) {}

  Result<> run() {
    std::vector<std::string> more;
    if (options_.kind == LossKind::kKillWithLeader) more = {"--coordinators", "3"};
    if (network_) more = {"--start", "0", "--host", network_->host()};
    STARLING_TRY(run_.start(options_.job, options_.workers, 1'000'000, more));
    if (network_) {
      STARLING_TRY(join_from_homes());
    }
    for (std::uint32_t i = 0; i < options_.losses; ++i) {
      STARLING_TRY(run_.settle(options_.workers));
      STARLING_TRY(lose_one());
      if (!options_.json && isatty(STDERR_FILENO))
        std::fprintf(stderr, "\r%u of %u losses ", i + 1, options_.losses);
    }
    if (!options_.json && isatty(STDERR_FILENO)) std::fprintf(stderr, "\n");
    return run_.each_once();
  }

  void report() const;

 private:
  Result<> join_from_homes() {
    STARLING_TRY(run_.wait_for("its first event", [&] { return run_.story().started; }));
    for (std::uint32_t i = 0; i < options_.workers; ++i) {
      const std::string name = "worker-" + std::to_string(i);
      STARLING_TRY(home, network_->home(name));
      const chaos::Inside inside(home.netns);
      STARLING_TRY(run_.join({"--name", name}));
    }
    return ok();
  }

  Result<> disturb(const event::EpochMember& victim, pid_t pid) {
    if (network_) return network_->cut(victim.name);
    const int signal = options_.kind == LossKind::kFreeze ? SIGSTOP : SIGKILL;
    if (pid == 0 || ::kill(pid, signal) != 0)
      return Error(Code::kInternal, "worker " + victim.name + " is not there to be disturbed");
    return ok();
  }

  // A frozen or cut worker is fenced, and its guard starts a new life, which joins.
  Result<> make_good(const event::EpochMember& victim, pid_t pid) {
    if (network_) return network_->mend(victim.name);
    if (options_.kind == LossKind::kFreeze) {
      ::kill(pid, SIGCONT);
      return ok();
    }
    STARLING_TRY(run_.join());
    return ok();
  }

  Result<> lose_one() {
    const judge::Story& story = run_.story();
    const auto& members = story.epochs.back().members;
    const event::EpochMember victim = members[draw_() % members.size()];
    const double typical = median_step_ms(story, options_.workers);
    std::this_thread::sleep_for(
        std::chrono::duration<double, std::milli>(1.5 * typical * double(draw_() % 1000) / 1000));
    const std::size_t epochs = story.epochs.size();
    const double at = story.now();
    const auto pid = static_cast<pid_t>(run_.seen(victim.id, WorkerChange::kJoined).pid);
    if (options_.kind == LossKind::kKillWithLeader) {
      STARLING_TRY(lose_leader());
    }
    STARLING_TRY(disturb(victim, pid));
    const auto committed_after = [&] {
      const auto& steps = story.step_lines;
      return std::count_if(steps.rbegin(), steps.rend(), [&](const auto& s) {
        return s.t > at && s.world == options_.workers - 1;
      });
    };
    STARLING_TRY(run_.wait_for("the others go on", [&] { return committed_after() >= 4; }));
    note(victim, at, epochs);
    return make_good(victim, pid);
  }

  // `starling run` starts the coordinator again.
  Result<> lose_leader() {
    const event::LeaderElected* leader = run_.leader();
    if (!leader || ::kill(static_cast<pid_t>(leader->pid), SIGKILL) != 0)
      return Error(Code::kInternal, "the leader's process is not there to be killed");
    election_ms_ = double(leader->election_ms);
    return ok();
  }

  void note(const event::EpochMember& victim, double at, std::size_t epochs_before) {
    Loss loss;
    const char* phase = words_of(options_.kind).phase;
    const auto told = run_.seen(victim.id, WorkerChange::kLost).phase;
    loss.phase = phase ? phase : told ? to_string(*told) : "";
    const Gap gap = gap_after(run_.story(), at, options_.workers - 1);
    loss.gap = gap.to_world;
    loss.longest = gap.longest;
    const auto& epochs = run_.story().epochs;
    loss.epochs = epochs.size() - epochs_before;
    const auto forced =
        std::find_if(epochs.begin() + static_cast<std::ptrdiff_t>(epochs_before), epochs.end(),
                     [](const event::EpochFormed& e) { return e.pause.has_value(); });
    if (forced != epochs.end()) {
      loss.pause = forced->pause;
      const Pause& p = *loss.pause;
      loss.detect = 1000 * (forced->t - at) - (p.report_ms + p.plan_ms + p.connect_ms +
                                               p.compute_ms + p.reduce_ms + p.vote_ms);
    }
    losses_.push_back(std::move(loss));
  }

  const RecoveryOptions options_;
  const std::uint64_t lease_ms_;
  const Wire wire_;
  const std::unique_ptr<chaos::Network> network_;
  LiveRun run_;
  std::mt19937_64 draw_;
  double election_ms_ = 0;  // of the last leader lost; 0: none was
  std::vector<Loss> losses_;
};

void RecoveryBench::report() const {
  const double rest = median_step_ms(run_.story(), options_.workers - 1);
  std::map<std::string, std::vector<double>> by_phase;
  for (const Loss& loss : losses_) {
    by_phase[loss.phase].push_back(loss.gap - rest);
    by_phase["all"].push_back(loss.gap - rest);
    by_phase["all, longest of 4"].push_back(loss.longest - rest);
  }
  std::map<std::string, std::vector<double>> parts;
  for (const Loss& loss : losses_) {
    if (!loss.pause) continue;
    parts["1 detect"].push_back(loss.detect);
    parts["2 report"].push_back(loss.pause->report_ms);
    parts["3 plan"].push_back(loss.pause->plan_ms);
    parts["4 connect"].push_back(loss.pause->connect_ms);
    parts["5 compute"].push_back(loss.pause->compute_ms);
    parts["6 reduce"].push_back(loss.pause->reduce_ms);
    parts["7 vote"].push_back(loss.pause->vote_ms);
  }
  const std::size_t twice = static_cast<std::size_t>(
      std::count_if(losses_.begin(), losses_.end(), [](const Loss& l) { return !l.pause; }));
  std::FILE* out = options_.out;
  const KindWords words = words_of(options_.kind);
  if (options_.json) {
    for (const auto* table : {&by_phase, &parts})
      for (const auto& [name, values] : *table)
        std::fprintf(
            out,
            "{\"bench\":\"recovery\",\"workers\":%u,\"kind\":\"%s\",\"what\":\"%s\",\"n\":%zu,"
            "\"median_ms\":%.2f,\"p99_ms\":%.2f,\"worst_ms\":%.2f,\"election_ms\":%.0f}\n",
            options_.workers, words.one, name.c_str(), values.size(), quantile(values, 0.5),
            quantile(values, 0.99), quantile(values, 1), election_ms_);
    std::fprintf(out,
                 "{\"bench\":\"recovery\",\"workers\":%u,\"kind\":\"%s\",\"what\":\"wire\","
                 "\"megabytes\":%.3f,\"median_ms\":%.3f}\n",
                 options_.workers, words.one, wire_.megabytes, wire_.ms);
    return;
  }
  std::fprintf(out, "%u workers, %zu %s; median step %.1f ms with all, %.1f ms with one less\n",
               options_.workers, losses_.size(), words.many,
               median_step_ms(run_.story(), options_.workers), rest);
  std::fprintf(out, "the wire itself: all-reduce of %.1f MB among %u processes %.1f ms\n",
               wire_.megabytes, options_.workers, wire_.ms);
  if (options_.kind == LossKind::kFreeze || options_.kind == LossKind::kCut)
    std::fprintf(out, "lease %llu ms\n", static_cast<unsigned long long>(lease_ms_));
  if (options_.kind == LossKind::kKillWithLeader) {
    const double aim = election_ms_ + kBeyondElection_ms;
    const auto& all = by_phase["all"];
    std::fprintf(out, "election timeout %.0f to %.0f ms; %td of %zu losses within %.0f ms\n",
                 election_ms_, 2 * election_ms_,
                 std::count_if(all.begin(), all.end(), [&](double ms) { return ms <= aim; }),
                 all.size(), aim);
  }
  const auto table = [&](const char* head, const auto& rows, std::size_t skip) {
    std::fprintf(out, "%-22s %5s %9s %9s %9s\n", head, "n", "median", "p99", "worst");
    for (const auto& [name, values] : rows)
      std::fprintf(out, "  %-20s %5zu %9.1f %9.1f %9.1f\n", name.c_str() + skip, values.size(),
                   quantile(values, 0.5), quantile(values, 0.99), quantile(values, 1));
  };
  table("gap minus step, ms", by_phase, 0);
  table("where it goes, ms", parts, 2);
  if (twice > 0) std::fprintf(out, "%zu losses without a table of parts\n", twice);
}

}  // namespace

int bench_recovery(const RecoveryOptions& options) {
  const auto job = load_job(options.job);
  if (!job) return tools::fail(job.error());
  const auto wire = measure_wire(job.value(), options.workers);
  if (!wire) return tools::fail(wire.error());
  std::unique_ptr<chaos::Network> network;
  if (options.kind == LossKind::kCut) {
    auto made = chaos::Network::make();
    if (!made) return tools::fail(Error(Code::kBadInput, "--cut: " + made.error().text()));
    network = std::move(made).value();
  }
  RecoveryBench bench(options, job.value().elastic.lease_ms, wire.value(), std::move(network));
  const auto ran = bench.run();
  bench.report();
  return ran ? 0 : tools::fail(ran.error());
}

}  // namespace starling::bench
