#pragma once
// Carries out a plan on the processes of a run, by signals from outside, and sees for each fault
// that it had its effect.
//
// Threads: belongs to one thread; nothing in here waits.

#include <functional>
#include <string>
#include <vector>

#include "tools/chaos/agenda.h"
#include "tools/chaos/cast.h"
#include "tools/chaos/deed.h"

namespace starling::chaos {

struct DisturberOptions {
  std::size_t workers_min = 2;  // fewer are never left
  std::size_t workers_max = 8;  // joins beyond are held back
  bool last_copies = false;     // may kill the last worker with some state
  double notice_s = 30;         // that the workers are told of a leave
};

// What it needs done and told.
struct DisturberCalls {
  std::function<void(const std::string& line)> say;
  std::function<Player*(double now)> start_worker;    // null: no key is free, or no process
  std::function<std::vector<Target>()> coordinators;  // processes that can be killed
};

class Disturber {
 public:
  Disturber(const Plan& plan, DisturberOptions options, DisturberCalls calls, Cast& cast,
            const Story& story);

  // `now` on the clock of the run's events. `first_step_t`: when the plan's time begins.
  void advance(double now, double first_step_t);
  bool finished() const { return next_ == deeds_.size() && agenda_.empty(); }
  // The job is over: nothing more is done, whoever is stopped goes on.
  void end(double now);

  const std::vector<Deed>& deeds() const { return deeds_; }

 private:
  void begin(std::size_t number, double now);
  void kill(std::size_t number, double now);
  void stop(std::size_t number, double now);
  void join(std::size_t number, double now);
  void leave(std::size_t number, double now);
  void kill_coordinator(std::size_t number, double now);
  void kill_guard(std::size_t number, double now);
  void slow(std::size_t number, double now);
  void pulse(std::size_t number, const Target& target, int seen, double now);

  void take_away(std::size_t number, const std::vector<Target>& targets, double now);

  // Those to hit, or an empty list after the deed was held back.
  std::vector<Player*> choose(std::size_t number, std::vector<Player*> among);
  std::vector<Player*> to_be_gone(std::size_t number);
  void hold_back(std::size_t number, const std::string& why);
  void hit(std::size_t number, double now, const std::string& what, std::vector<Target> targets);
  void expect(std::size_t number, double now, double within_s, const std::string& what,
              std::function<bool()> seen, std::function<void(double)> then = {});
  void expect_gone(std::size_t number, double now, const Target& target);
  void expect_left_out(std::size_t number, double now, const Target& target);
  void bring_back(const Fault& fault, double now);
  void wake(std::size_t number, const Target& target, double now);
  void say(double now, const std::string& text);

  const DisturberOptions options_;
  const DisturberCalls calls_;
  Cast& cast_;
  const Story& story_;
  Agenda agenda_;
  std::vector<Deed> deeds_;  // one for each fault of the plan
  std::size_t next_ = 0;
  double first_step_t_ = 0;
};

}  // namespace starling::chaos
