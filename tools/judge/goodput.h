#pragma once
// Goodput of a replay is its committed micro-batches over those
// that the workers present could have computed undisturbed. Pure.

#include <cstdint>
#include <vector>

#include "tools/judge/deed.h"
#include "tools/judge/point.h"

namespace starling::judge {

// A Rate was measured undisturbed: micro-batches a second of each of so many workers.
struct Rate {
  double workers = 0, per_worker = 0;
};
// Joins rates measured before and after the run, as a machine's speed drifts: the
// mean time of a micro-batch counts. Both must have the same numbers of workers.
std::vector<Rate> between(const std::vector<Rate>& before, const std::vector<Rate>& after);
// Returns the numbers of workers with which to measure: all from the fewest
// to the most, or, if these are many, some that lie evenly between them.
std::vector<double> sizes_between(double fewest, double most);
// Interpolates linearly between the measured ones, constant beyond; 0 of none.
double rate_at(const std::vector<Rate>& rates, double workers);

// Returns the micro-batches that so many workers over time can
// compute undisturbed. A point's value holds until the next.
double possible(const std::vector<Point>& workers, const std::vector<Rate>& rates, double from,
                double to);

// A worker is present from the moment it can compute until it is taken away:
// - from: an epoch of which it is a member has begun. A prepared one begins with the commit before
//   its first step, a forced one when its plan is committed;
// - until: its kill, the end of its notice, or the beginning of an epoch without it, whichever is
//   first.
// So a worker counts as present, and its missing work as missing, while an epoch is formed
// after a loss, while it leaves and has no share any more, and when its work is lost with it.
//
// The rate that counts is one measured apart from the run. Beside it stands the run's
// own: that of its steps without changes, the third and later ones of their epochs.
// On a machine whose speed drifts it tells more, as both were measured in the same
// minute; it leaves out what changes cost such steps, the start of a process for one.
//
// Goodput covers the first commit to the first at or after the end of the stretch
// (or that end, if the job failed; or the last commit, if it was done before).
struct Goodput {
  double from_t = 0, to_t = 0;  // on the clock of the run's events
  std::vector<Point> present;   // how many; a value holds until the next
  double worker_s = 0;          // its integral
  double possible = 0;          // micro-batches, at the measured rate of so many
  double trace_possible = 0;    // likewise, had each node of the trace computed all its life
  std::vector<Rate> own_rates;  // by the number of workers, ascending
  double own_possible = 0;      // micro-batches, at these; 0: there was no such step
  std::uint64_t committed = 0;  // micro-batches
  bool reached = false;         // the run lasted to the stretch's end

  double value() const { return possible > 0 ? double(committed) / possible : 0; }
  double of_own() const { return own_possible > 0 ? double(committed) / own_possible : 0; }
  double of_trace() const { return trace_possible > 0 ? double(committed) / trace_possible : 0; }
};

// `nodes`: of the trace, from 0 on (scenario.h); `seconds`: length of the stretch.
Goodput goodput_of(const Story& story, const std::vector<Deed>& deeds,
                   const std::vector<Rate>& rates, const std::vector<Point>& nodes, double seconds);

}  // namespace starling::judge
