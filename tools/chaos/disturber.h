#pragma once
// A Disturber carries out a plan on the processes of a run, from outside: it begins each
// fault when its time has come. The fault's kind (faults/) acts and says what must be seen.
//
// Threads: belongs to one thread; no function here waits.

#include <vector>

#include "tools/chaos/disturbance.h"

namespace starling::chaos {

class Disturber {
 public:
  Disturber(const Plan& plan, DisturberOptions options, DisturberCalls calls, Cast& cast,
            const judge::Story& story);
  Disturber(const Disturber&) = delete;
  Disturber& operator=(const Disturber&) = delete;

  // `now` on the clock of the run's events. `first_step_t`: when the plan's time begins.
  void advance(double now, double first_step_t);
  bool finished() const { return next_ == disturbances_.size() && run_.agenda.empty(); }
  // The job is over: no fault begins any more, and stopped processes go on.
  void end(double now);

  const std::vector<judge::Deed>& deeds() const { return run_.deeds; }

 private:
  const std::vector<Fault> faults_;
  DisturbedRun run_;
  std::vector<Disturbance> disturbances_;  // one for each deed; addresses stay
  std::size_t next_ = 0;
};

}  // namespace starling::chaos
