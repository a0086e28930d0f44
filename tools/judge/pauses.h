#pragma once
// A Pause says where the time went at a break of a run. Pure.

#include <string>
#include <vector>

#include "tools/judge/deed.h"

namespace starling::judge {

// A Pause is a forced epoch, or a kill, and the distance of the commits around it.
struct Pause {
  double t = 0;        // of the kill, or of the plan's commit if no deed explains it
  std::string what;    // "kill worker-2"; the epoch's own cause if no deed's
  std::string epoch;   // "1.4"; empty if none was formed
  double gap_ms = 0;   // last commit before to first commit after
  double step_ms = 0;  // median of the ten steps before
  double over_ms = 0;  // gap beyond two steps: the one that runs, the lost work
  double detect_ms = 0, form_ms = 0, resume_ms = 0;  // of the epoch
  // True: no other fault was near, and no state was gone with it: it counts for P7.
  bool alone = false;
  bool kill = false;
  bool guarded = true;  // false: the guard of one that was killed was dead before, and told nothing
};

std::vector<Pause> pauses_of(const Story& story, const std::vector<Deed>& deeds);

// Returns when the plan of this epoch was committed, as near as its line tells.
double committed_at(const Told<event::EpochFormed>& epoch);
// Returns forced epochs after the first that no deed but joins and leaves precedes.
std::vector<const Told<event::EpochFormed>*> unexplained(const Story& story,
                                                         const std::vector<Deed>& deeds);

}  // namespace starling::judge
