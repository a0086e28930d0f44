// How long a run pauses when a worker is killed or frozen, by what the worker was at, and where the
// time goes. One run, disturbed again and again; each loss is made good by a new worker.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <thread>

#include "core/job/job.h"
#include "tools/bench/bench.h"
#include "tools/chaos/ledger.h"
#include "tools/chaos/story.h"
#include "tools/starling/children.h"
#include "tools/starling/exit.h"

namespace starling::bench {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLook{2};
constexpr double kPatience = 60;  // seconds for anything that must come

// One loss, and what it cost. Milliseconds.
struct Loss {
  std::string phase;       // what the worker was at
  double gap = 0;          // from the last commit with the worker to the first without it
  double longest = 0;      // longest distance of two commits from the loss to the fourth after it
  double detect = 0;       // kill to the stop of the member that passed first
  std::size_t epochs = 0;  // plans until it was made good
  std::optional<Pause> pause;
};

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(q * double(values.size())));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

class Bench {
 public:
  explicit Bench(const RecoveryOptions& options)
      : options_(options),
        out_((std::filesystem::temp_directory_path() /
              ("starling-recovery-" + std::to_string(::getpid())))
                 .string()),
        tail_(out_ + "/events.jsonl"),
        quiet_(::open("/dev/null", O_WRONLY | O_CLOEXEC)),
        draw_(options.seed) {}
  ~Bench() {
    children_.signal_all(SIGINT);
    children_.wait_all(milliseconds(5000));
    children_.kill_rest();
    ::close(quiet_);
    std::error_code ignored;
    std::filesystem::remove_all(out_, ignored);
  }

  Result<> run() {
    STARLING_TRY(job, load_job(options_.job));
    lease_ms_ = job.lease_ms;
    STARLING_TRY(
        children_.spawn({"run", options_.job, "--workers", std::to_string(options_.workers),
                         "--steps", "1000000", "--out", out_},
                        quiet_));
    for (std::uint32_t i = 0; i < options_.losses; ++i) {
      STARLING_TRY(settle());
      STARLING_TRY(lose_one());
      if (!options_.json && isatty(STDERR_FILENO))
        std::fprintf(stderr, "\r%u of %u losses ", i + 1, options_.losses);
    }
    if (!options_.json && isatty(STDERR_FILENO)) std::fprintf(stderr, "\n");
    return each_once();
  }

  void report() const;

 private:
  Result<> read() {
    for (const std::string& line : tail_.lines()) story_.add(line);
    if (!story_.oddities.empty())
      return Error(Code::kCorrupt, story_.oddities.front() + "; " + out_ + "/events.jsonl");
    return ok();
  }

  // Steps whose ledger is still to come are not judged.
  Result<> each_once() {
    STARLING_TRY(read());
    chaos::Story judged = story_;
    while (judged.step_lines.size() > judged.ledger_lines.size()) judged.step_lines.pop_back();
    if (const auto wrong = chaos::count_ledgers(judged).wrong)
      return Error(Code::kCorrupt, *wrong + "; " + out_ + "/events.jsonl");
    return ok();
  }

  template <class Condition>
  Result<> wait_for(const char* what, Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kPatience);
    for (;;) {
      STARLING_TRY(read());
      if (condition()) return ok();
      if (story_.over()) return Error(Code::kInternal, std::string("the run ended before ") + what);
      if (std::chrono::steady_clock::now() > end)
        return Error(Code::kUnavailable, std::string(what) + ": not within 60 s");
      children_.reap();
      std::this_thread::sleep_for(kLook);
    }
  }

  // All workers there, every segment in enough copies, nothing under way for some steps.
  Result<> settle() {
    std::size_t from = 0;
    return wait_for("all workers are there and nothing moves", [&] {
      const chaos::EpochSeen* last = story_.last_epoch();
      const bool exposed = !story_.exposures.empty() && story_.exposures.back().segments > 0;
      const bool calm =
          last && last->members.size() == options_.workers && last->moves == 0 && !exposed;
      if (!calm) from = story_.step_lines.size();
      return calm && story_.step_lines.size() >= from + 5;
    });
  }

  Result<> lose_one() {
    const auto& members = story_.epochs.back().members;
    const chaos::MemberSeen victim = members[draw_() % members.size()];
    const double typical = median_step(options_.workers);
    std::this_thread::sleep_for(
        std::chrono::duration<double, std::milli>(1.5 * typical * double(draw_() % 1000) / 1000));
    const std::size_t epochs = story_.epochs.size();
    const double at = story_.now();
    const pid_t pid = seen(victim.id, "joined").pid;
    if (pid == 0 || ::kill(pid, options_.freeze ? SIGSTOP : SIGKILL) != 0)
      return Error(Code::kInternal, "worker " + victim.name + " is not there to be disturbed");

    const auto committed_after = [&] {
      const auto& steps = story_.step_lines;
      return std::count_if(steps.rbegin(), steps.rend(), [&](const auto& s) {
        return s.second.t > at && s.second.world == options_.workers - 1;
      });
    };
    STARLING_TRY(wait_for("the others go on", [&] { return committed_after() >= 4; }));
    note(victim, at, epochs);
    if (options_.freeze) {
      ::kill(pid, SIGCONT);  // fenced; its guard starts a new life, which joins
      return ok();
    }
    STARLING_TRY(children_.spawn(
        {"worker", "--join", story_.address, "--keys", story_.keys, "--quiet"}, quiet_));
    return ok();
  }

  // What the events told last of this life; nothing told is a life without a process.
  chaos::WorkerSeen seen(std::uint64_t id, const std::string& what) const {
    for (auto it = story_.workers.rbegin(); it != story_.workers.rend(); ++it)
      if (it->id == id && it->what == what) return *it;
    return {};
  }

  void note(const chaos::MemberSeen& victim, double at, std::size_t epochs_before) {
    Loss loss;
    loss.phase = options_.freeze ? "frozen" : seen(victim.id, "lost").phase;
    const auto& steps = story_.step_lines;
    const auto after =
        std::find_if(steps.begin(), steps.end(), [&](const auto& s) { return s.second.t > at; });
    const auto without = std::find_if(
        after, steps.end(), [&](const auto& s) { return s.second.world == options_.workers - 1; });
    const auto gap_before = [&](auto it) { return 1000 * (it->second.t - (it - 1)->second.t); };
    loss.gap = gap_before(without);
    for (auto it = after; it != steps.end() && it < after + 4; ++it)
      loss.longest = std::max(loss.longest, gap_before(it));
    const auto& epochs = story_.epochs;
    loss.epochs = epochs.size() - epochs_before;
    const auto forced =
        std::find_if(epochs.begin() + static_cast<std::ptrdiff_t>(epochs_before), epochs.end(),
                     [](const chaos::EpochSeen& e) { return e.pause.has_value(); });
    if (forced != epochs.end()) {
      loss.pause = forced->pause;
      const Pause& p = *loss.pause;
      loss.detect = 1000 * (forced->t - at) - (p.report_ms + p.plan_ms + p.connect_ms +
                                               p.compute_ms + p.reduce_ms + p.vote_ms);
    }
    losses_.push_back(std::move(loss));
  }

  // Of undisturbed steps: a step whose predecessor had the same world size.
  double median_step(std::uint32_t world) const {
    std::vector<double> ms;
    const auto& steps = story_.step_lines;
    const auto like = [&](std::size_t i) { return steps[i].second.world == world; };
    for (std::size_t i = 2; i < steps.size(); ++i)
      if (like(i) && like(i - 1) && like(i - 2))
        ms.push_back(1000 * (steps[i].second.t - steps[i - 1].second.t));
    return quantile(std::move(ms), 0.5);
  }

  const RecoveryOptions options_;
  const std::string out_;
  tools::Children children_;
  chaos::Tail tail_;
  chaos::Story story_;
  const int quiet_;  // where the processes' words go; events.jsonl has all that counts
  std::mt19937_64 draw_;
  std::uint64_t lease_ms_ = 0;
  std::vector<Loss> losses_;
};

void Bench::report() const {
  const double rest = median_step(options_.workers - 1);
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
  if (options_.json) {
    for (const auto* table : {&by_phase, &parts})
      for (const auto& [name, values] : *table)
        std::fprintf(
            out,
            "{\"bench\":\"recovery\",\"workers\":%u,\"kind\":\"%s\",\"what\":\"%s\",\"n\":%zu,"
            "\"median_ms\":%.2f,\"p99_ms\":%.2f,\"worst_ms\":%.2f}\n",
            options_.workers, options_.freeze ? "freeze" : "kill", name.c_str(), values.size(),
            quantile(values, 0.5), quantile(values, 0.99), quantile(values, 1));
    return;
  }
  std::fprintf(out, "%u workers, %zu %s; median step %.1f ms with all, %.1f ms with one less\n",
               options_.workers, losses_.size(), options_.freeze ? "freezes" : "kills",
               median_step(options_.workers), rest);
  if (options_.freeze)
    std::fprintf(out, "lease %llu ms\n", static_cast<unsigned long long>(lease_ms_));
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
  Bench bench(options);
  const auto ran = bench.run();
  bench.report();
  return ran ? 0 : tools::fail(ran.error());
}

}  // namespace starling::bench
