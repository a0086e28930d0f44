#pragma once
// A Deed says what was done to a run, and what was seen of it from outside:
// with the run's own events, all that a verdict rests on. Values only.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tools/judge/story.h"

namespace starling::judge {

// Times `t` are seconds on the clock of the run's events.

struct Effect {
  std::string what;  // "process 812 is gone"
  bool seen = false;
  bool overtaken = false;  // the job ended, or another fault came, before it could be seen
  double after_s = 0;      // of the deed
};

struct Target {
  std::string name;      // worker-3, coordinator-0
  std::uint64_t id = 0;  // of a worker's incarnation; 0: not known
  int pid = 0;
};

inline std::string process_text(const Target& target) {
  return target.name + " (process " + std::to_string(target.pid) + ")";
}

// The judge may expect this of a run after a deed of some kind.
struct Judged {
  bool takes = false;         // its targets do not come back, nor do their copies (P5)
  bool silences = false;      // its targets cannot act as long as it lasts (P4)
  bool forces_epochs = true;  // an epoch may be forced because of it (P7)
  bool announced = false;     // the group prepares for it, and is to go on meanwhile (P7)
  bool timed = false;         // the pause after it is measured (P7)
  bool takes_guard = false;   // nobody tells the deaths of its targets for certain after it (P7)
};

// Reports show a sign at the deed's time or, without one, a bar for as long as it lasts.
struct Shown {
  const char* style = "";  // of the chart: hurt, kind; of a bar: stopped, slow
  const char* sign = nullptr;
  const char* meaning = "";      // in the legend: "killed"
  bool on_coordinators = false;  // not on a worker's lane
};

struct Deed {
  enum class Outcome : std::uint8_t {
    kDone = 1,
    kHeldBack,    // no target, or it would have taken a last copy
    kNotReached,  // the job ended first
  };
  std::string kind;  // "kill"
  Judged judged;
  Shown shown;
  double planned_s = 0;  // after the first committed step
  double for_s = 0;      // how long it was to last, if it does; of a leave, its notice
  Outcome outcome = Outcome::kNotReached;
  double t = 0;
  double until_t = 0;  // when its target was as before (SIGCONT, ...); t if at once
  std::vector<Target> targets;
  std::string why;  // held back
  std::vector<Effect> effects;

  bool verified() const {  // every effect was seen or overtaken
    for (const Effect& e : effects)
      if (!e.seen && !e.overtaken) return false;
    return true;
  }
  bool all_seen() const {  // it was done, and the job lasted long enough to show it
    if (outcome != Outcome::kDone) return false;
    for (const Effect& e : effects)
      if (!e.seen) return false;
    return true;
  }
};

// A Revenant is a worker that was left out of an epoch while it could not act, and then woke up.
struct Revenant {
  Target who;
  std::string epoch;  // the first without it
  double woken_t = 0;
  std::optional<double> gone_t;  // when that life was over
};

struct ProcessEnd {
  std::string name;
  int pid = 0;
  int status = 0;        // exit status, or 128 + signal
  bool expected = true;  // a status that its life explains
};

// A Stall is a time in which this process did not run although it wanted
// to: nor may others have run, so their silence in it proves nothing.
struct Stall {
  double from = 0, to = 0;
};

// A Stranger is an attempt to get in without a key of the job.
struct Stranger {
  std::string how;
  bool refused = false;
  std::string seen;  // "closed after 3 ms, 0 bytes"
  bool met = true;   // by a process of the running job, which could have let it in
};

struct Evidence {
  std::optional<Story> quiet;    // the undisturbed run
  std::string reference_digest;  // its digest, or the given one; empty: none
  Story loud;                    // the disturbed run
  bool attached = false;         // the run was there before us and goes on after
  int run_status = 0;
  std::vector<std::string> run_errors;  // its lines "starling: ..." on stderr
  std::vector<Deed> deeds;
  std::vector<Revenant> revenants;
  std::vector<ProcessEnd> ends;  // of workers
  std::vector<std::string> leftovers;
  std::vector<Stranger> strangers;
  std::vector<Stall> stalls;
  // The time of the last look at the processes while the job went on.
  double watched_until_t = std::numeric_limits<double>::infinity();
  double pause_ms_max = 250;  // above the lost work; P7
};

}  // namespace starling::judge
