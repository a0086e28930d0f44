#include "actors/worker/pace.h"

#include <algorithm>

#include "core/base/check.h"
#include "kernels/models/synthetic.h"

namespace starling::actors {

std::chrono::nanoseconds micro_batch_time(const Job& job, double slowness, Version step,
                                          MicroBatch m, std::chrono::nanoseconds needed,
                                          double done) {
  using Duration = std::chrono::nanoseconds;
  const auto longest =
      std::max(needed, std::chrono::duration_cast<Duration>(
                           kernels::compute_time(job.model, job.seed, step, m) * done));
  return std::chrono::duration_cast<Duration>(longest * slowness);
}

Pace::Pace(const Job& job, double slowness) : job_(job), slowness_(slowness) {
  STARLING_CHECK(slowness >= 1);
  STARLING_CHECK(slowness <= kSlownessMax);
}

void Pace::wait(Clock::time_point begun, std::chrono::nanoseconds needed, Version step,
                MicroBatch m, double done) {
  const auto end = begun + micro_batch_time(job_, slowness_, step, m, needed, done);
  if (end <= Clock::now()) return;
  const MutexLock lock(mutex_);
  while (!cancelled_ && changed_.wait_until(mutex_, end)) continue;
}

void Pace::cancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
}

}  // namespace starling::actors
