#pragma once
// Metrics of a run, for Prometheus: what its events come to, as one process has told them. docs/metrics.md lists them.

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/base/mutex.h"
#include "core/job/job.h"
#include "core/observe/event_sink.h"
#include "core/observe/exposition.h"

namespace starling {

// Seconds since 1970, of the system's clock.
double unix_time();

// Threads: on() belongs to the writer's owner, write() and text() may be called from any other. Memory: fixed.
class Metrics : public EventSink {
 public:
  explicit Metrics(const Job& job);

  void on(const Event& event) override;

  // `now`: Unix time in seconds, of which the ratio of effective time is.
  void write(Exposition& out, double now) const;
  std::string text(MetricsFormat format, double now) const;

 private:
  static constexpr std::array<double, 11> kStepBounds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                                      1,     3,     10,   30,   100};

  // What the events have told so far.
  struct Told {
    void on(const Event& event);
    void add(const event::StepPassed& step);
    void add(const event::EpochFormed& epoch);
    void add(const event::WorkerChanged& change);

    struct Pauses {  // s
      double detect = 0, form = 0, resume = 0;
    };

    double begun = 0, last_step_at = 0, checkpoint_at = 0;  // Unix time; 0: not yet
    std::optional<std::uint64_t> next_step;
    std::uint64_t from = 0;
    std::uint64_t told_steps = 0, skipped = 0, tokens = 0;
    double loss = 0, norm = 0, step_s = 0;
    std::optional<double> rate, evaluation;
    std::array<std::uint64_t, kStepBounds.size() + 1> steps_in{};  // per bound, the last: above all
    std::uint64_t workers = 0;
    std::array<std::uint64_t, 4> changes{};  // by WorkerChange
    std::array<std::uint64_t, 3> epochs{};   // by PlanKind
    Pauses pauses;
    std::uint64_t exposed = 0, copies_min = 0, copies_wanted = 0;
    std::uint64_t checkpoints = 0, checkpoint_step = 0, restarts = 0;
    std::uint64_t notices = 0, leaves = 0, tainted = 0, mismatches = 0, warnings = 0;
    std::uint64_t elections = 0, term = 0, dropped = 0;
    bool done = false, ended = false, failed = false;
  };

  // Of the job.
  const std::string name_;
  const std::uint64_t steps_, checkpoint_every_, checkpoint_every_seconds_, samples_of_step_;

  mutable Mutex mutex_;
  Told told_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling
