#include "core/job/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/base/check.h"

namespace starling {
namespace {

constexpr std::array<std::string_view, 8> kBuiltIn = {"constant",  "linear",
                                                      "cosine",    "step",
                                                      "one-cycle", "warm-up-stable-decay",
                                                      "sampled",   "inverse-square-root"};

// cos(pi x) for x in [0, 1] from additions and products alone: libm's cos may differ in the last
// bit between two machines, and every worker must have the same learning rate.
double cos_pi(double x) {
  if (x > 0.5) return -cos_pi(1 - x);
  const bool sine = x > 0.25;  // cos(pi x) = sin(pi (1/2 - x)), again of an argument up to pi/4
  const double a = (sine ? 0.5 - x : x) * std::numbers::pi;
  double term = sine ? a : 1, sum = term;
  for (int n = sine ? 3 : 2; n < 22; n += 2) {  // Taylor; the last term is below 1e-20
    term *= -a * a / (n * (n - 1));
    sum += term;
  }
  return sum;
}

double power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

// The part of the steps from `first` to the schedule's last that is behind with this one: up to 1.
double behind(std::uint64_t step, std::uint64_t first, std::uint64_t schedule) {
  if (step + 1 >= schedule) return 1;
  if (step < first) return 0;
  return static_cast<double>(step + 1 - first) / static_cast<double>(schedule - first);
}

// From the peak to the floor, as this part of the way down is left.
double falling(const OptimizerSpec& o, double left) {
  return o.peak_rate * (o.floor + (1 - o.floor) * left);
}

double one_cycle(const OptimizerSpec& o, std::uint64_t step, std::uint64_t schedule) {
  const std::uint64_t warmup = o.warmup_steps;
  if (step >= warmup) return falling(o, (1 + cos_pi(behind(step, warmup, schedule))) / 2);
  if (step + 1 == warmup) return o.peak_rate;
  const double part = static_cast<double>(step) / static_cast<double>(warmup - 1);
  return o.peak_rate * (o.start + (1 - o.start) * (1 - cos_pi(part)) / 2);
}

double sampled(const OptimizerSpec& o, std::uint64_t step) {
  STARLING_CHECK(!o.fractions.empty());
  return o.peak_rate * o.fractions[std::min<std::uint64_t>(step, o.fractions.size() - 1)];
}

}  // namespace

bool is_built_in_schedule(std::string_view name) {
  return std::find(kBuiltIn.begin(), kBuiltIn.end(), name) != kBuiltIn.end();
}

bool has_length(const OptimizerSpec& optimizer) {
  const std::string& name = optimizer.schedule;
  const bool endless =
      name == "constant" || name == "step" || name == "inverse-square-root" || name == "sampled";
  return !endless || Named<Schedule>::find(name) != nullptr;
}

Result<> check_schedule(const OptimizerSpec& optimizer, const std::string& section) {
  const std::string& name = optimizer.schedule;
  if (name.empty() || Named<Schedule>::find(name) != nullptr || is_built_in_schedule(name))
    return ok();
  std::string all = Named<Schedule>::known();
  if (all == "none") all.clear();
  for (const std::string_view known : kBuiltIn)
    if (known != "sampled")  // scripts alone write it
      all.append(all.empty() ? "" : ", ").append(known);
  return Error(Code::kBadInput, "this program has no schedule \"" + name + "\", it has " + all +
                                    "; [" + section + "].schedule");
}

double learning_rate(const OptimizerSpec& optimizer, std::uint64_t step, std::uint64_t steps,
                     double peak_rate) {
  if (peak_rate != 0 && peak_rate != optimizer.peak_rate) {
    OptimizerSpec other = optimizer;
    other.peak_rate = peak_rate;
    return learning_rate(other, step, steps);
  }
  const OptimizerSpec& o = optimizer;
  const std::uint64_t schedule = o.schedule_steps ? o.schedule_steps : steps;
  if (!o.schedule.empty())
    if (const auto* own = Named<Schedule>::find(o.schedule)) return own->rate(o, step, schedule);
  if (o.schedule == "sampled") return sampled(o, step);
  if (o.schedule == "one-cycle") return one_cycle(o, step, schedule);
  const std::uint64_t warmup = o.warmup_steps;
  if (step < warmup)
    return o.peak_rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (o.schedule == "constant") return o.peak_rate;
  if (o.schedule == "step")
    return o.peak_rate *
           power(o.step_factor, (step - warmup) / std::max<std::uint64_t>(o.step_every, 1));
  if (o.schedule == "inverse-square-root")
    return o.peak_rate * std::sqrt(static_cast<double>(std::max<std::uint64_t>(warmup, 1)) /
                                   static_cast<double>(step + 1));
  if (o.schedule == "warm-up-stable-decay") {
    const std::uint64_t decay = std::min(o.decay_steps, schedule);
    if (step + 1 <= schedule - decay) return o.peak_rate;
    return falling(o, 1 - behind(step, schedule - decay, schedule));
  }
  const double part = behind(step, warmup, schedule);
  if (o.schedule == "linear") return falling(o, 1 - part);
  STARLING_CHECK_MSG(o.schedule.empty() || o.schedule == "cosine", "schedule " << o.schedule);
  if (part == 1) return o.peak_rate * o.floor;  // the cosine's end, and whatever comes after
  return falling(o, (1 + cos_pi(part)) / 2);
}

}  // namespace starling
