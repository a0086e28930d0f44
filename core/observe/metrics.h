#pragma once
// Metrics of a run, for Prometheus: what its events come to, as one process has told them. docs/metrics.md lists them.

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

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

  struct Pauses {  // s
    double detect = 0, form = 0, resume = 0;
  };

  void add(const event::StepPassed& step);
  void add(const event::EpochFormed& epoch);
  void add(const event::WorkerChanged& change);

  // Of the job.
  const std::string name_;
  const std::uint64_t steps_, checkpoint_every_, checkpoint_every_seconds_, samples_of_step_;

  mutable std::mutex mutex_;                                 // protects the rest:
  double begun_ = 0, last_step_at_ = 0, checkpoint_at_ = 0;  // Unix time; 0: not yet
  std::optional<std::uint64_t> next_step_;
  std::uint64_t from_ = 0;
  std::uint64_t told_steps_ = 0, skipped_ = 0, tokens_ = 0;
  double loss_ = 0, norm_ = 0, step_s_ = 0;
  std::optional<double> rate_, evaluation_;
  std::array<std::uint64_t, kStepBounds.size() + 1> steps_in_{};  // per bound, the last: above all
  std::uint64_t workers_ = 0;
  std::array<std::uint64_t, 4> changes_{};  // by WorkerChange
  std::array<std::uint64_t, 3> epochs_{};   // by PlanKind
  Pauses pauses_;
  std::uint64_t exposed_ = 0, copies_min_ = 0, copies_wanted_ = 0;
  std::uint64_t checkpoints_ = 0, checkpoint_step_ = 0, restarts_ = 0;
  std::uint64_t notices_ = 0, leaves_ = 0, tainted_ = 0, mismatches_ = 0, warnings_ = 0;
  std::uint64_t elections_ = 0, term_ = 0, dropped_ = 0;
  bool done_ = false, ended_ = false, failed_ = false;
};

}  // namespace starling
