#pragma once
// How long a micro-batch takes, beyond the time that computing it needs: the compute time of a
// synthetic model, and of any model on a worker that is to be slow. It is waited, not burnt.

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/job/job.h"

namespace starling::actors {

// From the beginning of micro-batch m of `step` until `done` of it, 0 to 1, are computed, which
// itself needed `needed`: never less, and `slowness` times that or this part of the synthetic
// model's compute time, whichever is longer.
std::chrono::nanoseconds micro_batch_time(const Job& job, double slowness, Version step,
                                          MicroBatch m, std::chrono::nanoseconds needed,
                                          double done = 1);

// Threads: any.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  // 1 <= slowness <= kSlownessMax
  Pace(const Job& job, double slowness);

  // Called when `done` of it, 0 to 1, are computed; returns when that of the micro-batch that was
  // begun at `begun` has taken its time.
  // `needed`: what computing it took, without such waits.
  void wait(Clock::time_point begun, std::chrono::nanoseconds needed, Version step, MicroBatch m,
            double done = 1);
  // Ends all waits, those to come too.
  void cancel();

 private:
  const Job job_;
  const double slowness_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;  // guarded by mutex_
};

}  // namespace starling::actors
