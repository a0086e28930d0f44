#pragma once
// Learning rates: `schedule = "name"` in a job file's [optimizer]. Each is a function of the step's
// number alone, of additions, products, divisions and square roots, as the C library's cos() and
// exp() differ between machines.
//
// With step k from 0, S steps of the schedule, W of them warm-up, and x = (k + 1 - W) / (S - W),
// the part that is behind after the warm-up, 1 in the last step and after it, the rate is the peak
// times:
//
//   all           (k + 1) / W in the warm-up, except for "one-cycle" and "sampled"
//   cosine        floor + (1 - floor) (1 + cos(pi x)) / 2; where nothing is named
//   linear        floor + (1 - floor) (1 - x)
//   constant      1
//   step          step_factor ^ floor((k - W) / step_every)
//   inverse-square-root   sqrt(V / (k + 1)) with V = max(W, 1)
//   warm-up-stable-decay  1, and in the last D = decay_steps linear: x = (k + 1 - (S - D)) / D
//   one-cycle     start + (1 - start) (1 - cos(pi k / (W - 1))) / 2 in the warm-up, then cosine
//   sampled       fractions[k]

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/named.h"
#include "core/job/job.h"

namespace starling {

inline constexpr std::size_t kFractionsMax = 32768;  // of "sampled": what a job file has room for

// An application's: gives the learning rate of step k (0-based) of `steps`, the same double on every
// worker. One with the name of a schedule above takes its place.
struct Schedule {
  std::function<double(const OptimizerSpec& optimizer, std::uint64_t step, std::uint64_t steps)>
      rate;
};

// Whether a schedule of that name is one of those above.
bool is_built_in_schedule(std::string_view name);

// Whether the rate of a step depends on how many steps there are in all.
bool has_length(const OptimizerSpec& optimizer);

// Errors: kBadInput  [optimizer], or that section of a job, names a schedule that is none of these.
Result<> check_schedule(const OptimizerSpec& optimizer, const std::string& section = "optimizer");

}  // namespace starling
