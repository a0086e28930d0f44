#pragma once
// Where the time went at each break of a run. Pure.

#include <string>
#include <vector>

#include "tools/chaos/deed.h"

namespace starling::chaos {

// A forced epoch, or a kill, and the distance of the commits around it.
struct Pause {
  double t = 0;        // of the kill, or of the plan's commit if nothing of ours explains it
  std::string what;    // "kill worker-2"; the epoch's own cause if it is not a deed's
  std::string epoch;   // "1.4"; empty if none was formed
  double gap_ms = 0;   // last commit before to first commit after
  double step_ms = 0;  // median of the ten steps before
  double over_ms = 0;  // what the gap has above two steps: the one that runs, and the lost work
  double detect_ms = 0, form_ms = 0, resume_ms = 0;  // of the epoch
  // No other fault was near, and no state was gone with it: it counts for P7.
  bool alone = false;
  bool kill = false;
};

std::vector<Pause> pauses_of(const Story& story, const std::vector<Deed>& deeds);

// When the plan of this epoch was committed, as near as its line tells.
double committed_at(const EpochSeen& epoch);
// Forced epochs after the first that no deed but joins and leaves comes before.
std::vector<const EpochSeen*> unexplained(const Story& story, const std::vector<Deed>& deeds);

}  // namespace starling::chaos
