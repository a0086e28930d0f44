#pragma once
// Goodput of a replay: committed micro-batches over those that the workers present could have
// computed undisturbed. Pure.

#include <cstdint>
#include <vector>

#include "tools/chaos/chart.h"
#include "tools/chaos/deed.h"

namespace starling::replay {

// Measured undisturbed: micro-batches a second of each of so many workers.
struct Rate {
  double workers = 0, per_worker = 0;
};
// A machine's speed drifts, so the rates are measured before and after the run: the mean time of a
// micro-batch counts. Both were measured with the same numbers of workers.
std::vector<Rate> between(const std::vector<Rate>& before, const std::vector<Rate>& after);
// The numbers of workers with which to measure: all from the fewest to the most, or of many those
// that lie evenly between them.
std::vector<double> sizes_between(double fewest, double most);
// Linear between what was measured, constant beyond; 0 of none.
double rate_at(const std::vector<Rate>& rates, double workers);

// Micro-batches that so many workers over time can compute undisturbed. A point's value holds until
// the next.
double possible(const std::vector<chaos::Point>& workers, const std::vector<Rate>& rates,
                double from, double to);

// A worker is present from the moment it can compute until it is taken away:
// - from: an epoch of which it is a member has begun. A prepared one begins with the commit before
//   its first step, a forced one when its plan is committed;
// - until: its kill, the end of its notice, or the beginning of an epoch without it, whichever is
//   first.
// So it is present, and what it does not compute is missing, while an epoch is formed after a loss,
// while a leaver has no share any more, and when what it computed is lost with it.
//
// The rate that counts is one measured apart from the run. Beside it stands the run's own: that of
// its steps in which nothing changed, the third and later ones of their epochs. On a machine whose
// speed drifts it tells more, as both were measured in the same minute; what it leaves out is what
// changes cost such steps, the start of a process for one.
//
// From the first commit to the first at or after the end of the stretch (or that end, if the job
// failed; or the last commit, if it was done before).
struct Goodput {
  double from_t = 0, to_t = 0;        // on the clock of the run's events
  std::vector<chaos::Point> present;  // how many; a value holds until the next
  double worker_s = 0;                // the integral of that
  double possible = 0;                // micro-batches, at the measured rate of so many
  double trace_possible = 0;          // likewise, had each node of the trace computed all its life
  std::vector<Rate> own_rates;        // by the number of workers, ascending
  double own_possible = 0;            // micro-batches, at these; 0: there was no such step
  std::uint64_t committed = 0;        // micro-batches
  bool reached = false;               // the run lasted to the stretch's end

  double value() const { return possible > 0 ? double(committed) / possible : 0; }
  double of_own() const { return own_possible > 0 ? double(committed) / own_possible : 0; }
  double of_trace() const { return trace_possible > 0 ? double(committed) / trace_possible : 0; }
};

// `nodes`: of the trace, from 0 on (scenario.h); `seconds`: length of the stretch.
Goodput goodput_of(const chaos::Story& story, const std::vector<chaos::Deed>& deeds,
                   const std::vector<Rate>& rates, const std::vector<chaos::Point>& nodes,
                   double seconds);

}  // namespace starling::replay
