#pragma once
// The benchmarks of whole runs read these figures off a run's events. Pure.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/judge/story.h"

namespace starling::bench {

// Returns the least value that at least the part q of them does not exceed; 0 if there are none.
double quantile(std::vector<double> values, double q);

// Returns the median distance of two commits, milliseconds, of undisturbed
// steps: those whose two predecessors had the same world size. 0: there is none.
double median_step_ms(const judge::Story& story, std::uint32_t world);

// A Gap has distances of commits around an instant, milliseconds.
struct Gap {
  double to_world = 0;  // before the first step with `world` members that was told after it
  double longest = 0;   // of the first `steps` that were told after it
};
Gap gap_after(const judge::Story& story, double t, std::uint32_t world, std::size_t steps = 4);

// ---- Changes that stop no worker ----------------------------------------------------------------

// A Stretch is the step lines [first, last) of a story.
struct Stretch {
  std::size_t first = 0, last = 0;
  std::size_t size() const { return last - first; }
};

// QuietSteps says what an undisturbed step takes by the number of workers, milliseconds.
class QuietSteps {
 public:
  // Takes medians of the distances of commits in these stretches, for each number by itself.
  QuietSteps(const judge::Story& story, const std::vector<Stretch>& quiet);
  // A number that was not measured is taken from the line through the two nearest that were, over
  // how many micro-batches the busiest worker gets at least. 0: fewer than two were measured.
  double ms(std::uint32_t world) const;
  const std::map<std::uint32_t, double>& measured() const { return medians_; }

 private:
  double rounds(std::uint32_t world) const;
  const std::uint64_t micro_batches_;
  std::map<std::uint32_t, double> medians_;
};

// ChangeFigures compares steps during a change with undisturbed ones of as many workers.
struct ChangeFigures {
  std::vector<double> ms;              // distances of commits
  std::vector<double> ratios;          // each by what an undisturbed step of as many workers takes
  std::size_t epochs = 0, forced = 0;  // that were told meanwhile
};
ChangeFigures change_figures(const judge::Story& story, const Stretch& stretch,
                             const QuietSteps& quiet);

}  // namespace starling::bench
