#pragma once
// Carries out a plan on the processes of a run, by signals from outside, and sees for each fault
// that it had its effect.
//
// Threads: belongs to one thread; nothing in here waits.

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tools/chaos/agenda.h"
#include "tools/chaos/cast.h"
#include "tools/chaos/deed.h"
#include "tools/chaos/links.h"

namespace starling::chaos {

inline constexpr double kSoon_s = 5;    // for what the kernel does at once
inline constexpr double kEpoch_s = 60;  // for an epoch to be formed, on a busy machine too
inline constexpr double kJoin_s = 60;   // a process to start, join and become a member

struct DisturberOptions {
  std::size_t workers_min = 2;  // fewer are never left
  bool all_awake = false;       // nor fewer that are not stopped
  std::size_t workers_max = 8;  // joins beyond are held back
  bool checkpoints = false;     // the job writes some
  bool last_copies = false;     // may kill the last worker with some state
  double notice_s = 30;         // that the workers are told of a leave
};

// What it needs done and told.
struct DisturberCalls {
  std::function<void(const std::string& line)> say;
  std::function<Player*(double now)> start_worker;    // null: no key is free, or no process
  std::function<std::vector<Target>()> coordinators;  // processes that can be killed
  // How many lines with this text the processes of `starling run` have said.
  std::function<std::size_t(const std::string& text)> said;
  Links* links = nullptr;  // between all workers; null: they cannot be disturbed
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
  bool has_other_end(std::size_t number, const Target& target) const;
  void slow(std::size_t number, double now);
  void fill_disk(std::size_t number, double now);
  void keep_full(std::size_t number, int guest, double now);
  void expect_again(std::size_t number, double now, const Target& target);
  void fill_checkpoint_disk(std::size_t number, double now);
  void give_space_back(std::size_t number, Player* player, int pid, std::size_t warnings,
                       double now);
  bool out_of_space(const Player& player, int pid, std::size_t warnings) const;
  bool warned_of(const std::string& worker, std::size_t warnings) const;
  void partition(std::size_t number, double now);
  struct Cut {
    Player* player;
    std::uint64_t id;    // its life
    std::size_t epochs;  // that had been told of
    Witness witness;
  };
  void heal(std::size_t number, const Cut& cut, double now);
  void corrupt(std::size_t number, double now);
  void flip(std::size_t number, double now, const Player* player, int more);
  void slow_link(std::size_t number, double now);
  void restore_link(Player& player);
  std::vector<Player*> with_links(std::size_t number);
  static bool taken(const Player& player);
  static std::vector<Target> targets_of(const std::vector<Player*>& players);
  void pulse(std::size_t number, const Target& target, int seen, double now);

  void take_away(std::size_t number, const std::vector<Target>& targets, double now);

  // Those to hit, or an empty list after the deed was held back.
  std::vector<Player*> choose(std::size_t number, std::vector<Player*> among);
  std::vector<Player*> to_be_gone(std::size_t number);
  std::size_t that_count();  // as workers that are left
  void hold_back(std::size_t number, const std::string& why);
  void hit(std::size_t number, double now, const std::string& what, std::vector<Target> targets);
  void expect(std::size_t number, double now, double within_s, const std::string& what,
              std::function<bool()> seen, std::function<void(double)> then = {});
  void expect_gone(std::size_t number, double now, const Target& target,
                   std::function<void(double)> then = {});
  void expect_left_out(std::size_t number, double now, const Target& target);
  void bring_back(const Fault& fault, double now);
  void wake(std::size_t number, const Target& target, const std::function<bool()>& was_stopped,
            double now);
  void say(double now, const std::string& text);
  std::vector<Target> sorted_coordinators() const;
  static std::string seconds_text(double seconds);

  const DisturberOptions options_;
  const DisturberCalls calls_;
  Cast& cast_;
  const Story& story_;
  Agenda agenda_;
  std::vector<Deed> deeds_;  // one for each fault of the plan
  std::size_t next_ = 0;
  double first_step_t_ = 0;
  // Processes that we keep from writing.
  std::set<int> full_;  // coordinators
  std::set<int> full_workers_;
};

}  // namespace starling::chaos
