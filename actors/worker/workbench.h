#pragma once
// A Workbench gives a compute thread the working parameters that it reads, and a place for
// the gradients that it makes. It cannot reach anything else of a worker's memory from here.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "actors/worker/arrivals.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"
#include "kernels/models/gradient_maker.h"

namespace starling::actors {

// Threads: any number. Memory that passes read does not change while an ordered micro-batch is
// computed: a part that is there at a version is not written before that version's step has passed.
class Workbench {
 public:
  Workbench(const kernels::State& state, Arrivals& arrivals, kernels::Accumulators& accumulators,
            std::atomic<std::uint64_t>& progress, std::uint64_t seed, std::string worker)
      : state_(state),
        arrivals_(arrivals),
        accumulators_(accumulators),
        progress_(progress),
        seed_(seed),
        worker_(std::move(worker)) {}

  // `told` runs on the thread that adds last to a part (Accumulators::tell). Call it once, first.
  void tell(std::function<void(PartId)> told) { accumulators_.tell(std::move(told)); }

  // scale: log2 of the factor of the step's loss.
  kernels::Working working(std::uint8_t scale = 0) const {
    kernels::Working working = state_.working();
    working.scale = scale;
    return working;
  }
  // Call it before a part is read: see Arrivals.
  std::optional<std::chrono::nanoseconds> wait(PartId part, Version step) {
    return arrivals_.wait(part, step);
  }
  void cancel() { arrivals_.cancel(); }
  bool cancelled() const { return arrivals_.cancelled(); }
  const std::string& worker() const { return worker_; }  // the owner's name

  // Returns the place for the gradient of micro-batch m of `step`, once (P2).
  kernels::Accumulators::Adding begin(kernels::Queue& queue, Version step, MicroBatch m) {
    return accumulators_.begin(queue, working().exponents, seed_, step, m);
  }
  // Returns a place for its contribution alone: nothing is added.
  kernels::Accumulators::Adding begin_again(kernels::Queue& queue, Version step, MicroBatch m) {
    return accumulators_.begin_again(queue, working().exponents, seed_, step, m);
  }
  // Counts a pass whose gradient is not added here as progress.
  void passed() { ++progress_; }
  // Ends `adding`: all of its gradient is there.
  kernels::Accumulators::Added finish(kernels::Accumulators::Adding& adding) {
    const auto added = adding.finish();
    ++progress_;
    return added;
  }

 private:
  const kernels::State& state_;
  Arrivals& arrivals_;
  kernels::Accumulators& accumulators_;
  std::atomic<std::uint64_t>& progress_;
  const std::uint64_t seed_;
  const std::string worker_;
};

}  // namespace starling::actors
