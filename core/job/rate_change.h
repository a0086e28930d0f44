#pragma once
// A RateChange is an admin's (docs/steer.md): from step `from` on, until the next change, `peak_rate` takes the place of
// [optimizer].peak_rate. The membership group's log has them, so all workers change at the same step.

#include <vector>

#include "core/base/ids.h"

namespace starling {

struct RateChange {
  Version from = 0;
  double peak_rate = 0;  // as a job file's: above 0, at most kPeakRateMax
  bool operator==(const RateChange&) const = default;
};

inline constexpr double kPeakRateMax = 1000;

// Whether a job file may have this peak rate.
constexpr bool is_peak_rate(double rate) {
  return rate > 0 && rate <= kPeakRateMax;
}

// Returns the peak rate of that step; 0: the job's. `changes`: in the order in which they were made, so that of two of
// the same step the later one holds.
inline double changed_rate(const std::vector<RateChange>& changes, Version step) {
  double rate = 0;
  for (const RateChange& change : changes)
    if (change.from <= step) rate = change.peak_rate;
  return rate;
}

}  // namespace starling
