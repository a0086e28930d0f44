#pragma once
// A Disturbance is a fault on its way: what its kind's file (faults/) may see, do and expect.
//
// Threads: belongs to one thread; no function here waits. A kind's functions may keep a reference
// to the disturbance in the calls that they put on the agenda: both live as long as the disturber.

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tools/chaos/agenda.h"
#include "tools/chaos/cast.h"
#include "tools/chaos/links.h"
#include "tools/chaos/plan.h"
#include "tools/judge/deed.h"

namespace starling::chaos {

inline constexpr double kSoon_s = 5;    // for what the kernel does at once
inline constexpr double kEpoch_s = 60;  // for an epoch to be formed, on a busy machine too
inline constexpr double kJoin_s = 60;   // a process to start, join and become a member

struct DisturberOptions {
  std::size_t workers_min = 2;  // fewer never stay
  bool all_awake = false;       // workers_min counts only workers that are not stopped
  std::size_t workers_max = 8;  // joins beyond are held back
  bool checkpoints = false;     // the job writes some
  bool last_copies = false;     // may kill the last worker with some state
  double notice_s = 30;         // seconds from a worker's notice of a leave to its end
};

// The disturber needs these calls from its owner.
struct DisturberCalls {
  std::function<void(const std::string& line)> say;
  std::function<Player*(double now)> start_worker;           // null: no key is free, or no process
  std::function<std::vector<judge::Target>()> coordinators;  // processes that can be killed
  // Counts lines with this text from the processes of `starling run`.
  std::function<std::size_t(const std::string& text)> said;
  Links* links = nullptr;  // between all workers; null: they cannot be disturbed
};

// All faults share the DisturbedRun.
struct DisturbedRun {
  const DisturberOptions options;
  const DisturberCalls calls;
  Cast& cast;                       // its workers, and what is done to each right now
  const judge::Story& story;        // its events so far
  std::vector<judge::Deed> deeds;   // one for each fault of the plan; addresses stay
  std::set<int> full_coordinators;  // processes that we keep from writing
  Agenda agenda;
  double now = 0, first_step_t = 0;  // this look's time; when the plan's time began
};

class Disturbance {
 public:
  Disturbance(DisturbedRun& run, const Fault& fault, judge::Deed& deed)
      : run_(run), fault_(fault), deed_(deed) {}

  DisturbedRun& run() { return run_; }
  const Fault& fault() const { return fault_; }
  const judge::Deed& deed() const { return deed_; }

  // Picks `count` of these from the target's place on, and round.
  template <class T>
  std::vector<T> pick(const std::vector<T>& among) const {
    const auto first = static_cast<std::size_t>(fault().target * static_cast<double>(among.size()));
    std::vector<T> picked;
    for (std::size_t i = 0; i < std::min<std::size_t>(fault().count, among.size()); ++i)
      picked.push_back(among[(first + i) % among.size()]);
    return picked;
  }
  // Picks players; none after it held the fault back for want of players.
  std::vector<Player*> choose(const std::vector<Player*>& among);
  // Notes that the fault is not done, and why.
  void hold_back(const std::string& why);
  // Notes that it is done, to these targets: "kill -9 worker-1 (process 7)".
  void hit(const std::string& what, std::vector<judge::Target> targets);
  // Notes when its targets will be, or were, as before.
  void lasts_until(double t) { deed_.until_t = t; }
  // Expects an effect in this time; `then` is called when it is seen. `overtaken` ends the wait:
  // another fault or the job's end came first, and the effect counts as neither seen nor missing.
  void expect(double within_s, const std::string& what, std::function<bool()> seen,
              std::function<void()> then = {}, std::function<bool()> overtaken = {});
  void later(double after_s, std::function<void()> then);
  void say(const std::string& text);  // to the person who watches

 private:
  DisturbedRun& run_;
  const Fault& fault_;
  judge::Deed& deed_;
};

std::string seconds_text(double seconds);  // "1.25 s"

}  // namespace starling::chaos
