#pragma once
// Pace makes a micro-batch take longer than computing it needs: by the compute time of a synthetic
// model, or on a worker that is to be slow. The thread sleeps for this time; it does not spin.

#include <chrono>

#include "core/base/mutex.h"
#include "core/job/job.h"

namespace starling::actors {

// Returns the time from the beginning of micro-batch m of `step` until `done` of
// it, 0 to 1, is computed: `slowness` times `needed` (the compute time itself)
// or times this part of the synthetic model's compute time, whichever is longer.
std::chrono::nanoseconds micro_batch_time(const Job& job, double slowness, Version step,
                                          MicroBatch m, std::chrono::nanoseconds needed,
                                          double done = 1);

// Threads: any.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  // 1 <= slowness <= kSlownessMax
  Pace(const Job& job, double slowness);

  // Call it when `done` of the micro-batch, 0 to 1, is computed; returns
  // when that much of the micro-batch begun at `begun` has taken its
  // time. `needed`: the time that computing it took, without such waits.
  void wait(Clock::time_point begun, std::chrono::nanoseconds needed, Version step, MicroBatch m,
            double done = 1);
  // Ends all waits, present and future ones.
  void cancel();

 private:
  const Job job_;
  const double slowness_;
  Mutex mutex_;
  CondVar changed_;
  bool cancelled_ STARLING_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::actors
