#pragma once
// A Cast knows the processes of a run from outside: which are there, which may be hit, and
// whether a hit would take the last copy of some state. It only keeps books; others send signals.
//
// Threads: belongs to one thread.

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/judge/deed.h"

namespace starling::chaos {

// A Player is a worker: its guard and, below it, the process that computes. A
// fenced one lives on under the same guard with another process and incarnation.
struct Player {
  std::string name;             // of its key
  std::string node;             // the node that it came as, if the plan names nodes
  int guard = 0;                // 0: gone, or not known
  int pid = 0;                  // the one that computes; 0: not known yet
  std::uint64_t id = 0;         // of that process's incarnation; 0: not known yet
  std::uint64_t ended = 0;      // the last incarnation whose process is gone
  int killed_guard = 0;         // the process, by us; 0: none
  bool killed = false;          // by us
  bool stopped = false;         // right now, by us
  bool leaving = false;         // told to
  bool link_disturbed = false;  // right now, by us
  int full = 0;                 // the process that we keep from writing; 0: none
  bool over = false;            // no process of it is left
  double began_t = 0;

  bool is_older_than(std::uint64_t life) const { return life > id && life > ended; }
  judge::Target target() const { return {name, id, pid != 0 ? pid : guard}; }
  bool can_be_hit() const { return pid != 0 && !killed && !stopped && !leaving && !over; }
};

class Cast {
 public:
  Player& add(std::string name, int guard, double t);
  // Returns the youngest player of that name; null: none.
  Player* find(const std::string& name);
  Player* by_guard(int guard);
  Player* by_node(const std::string& node);
  Player* by_process(int pid);

  // Call these after each event of the run and regularly, so that `pid`, `id` and `over` stay true.
  void learn(const event::WorkerChanged& seen);
  void learn(const event::EpochFormed& epoch);
  void look();  // at the processes
  // Notes a worker that we may not hit, whose copies count all the same.
  void elsewhere(std::uint64_t id, bool there);

  // Returns when each computing process was first seen to be gone.
  const std::multimap<int, double>& gone() const { return gone_; }
  void set_time(double t) { now_ = t; }

  // Returns members of the last epoch that can be hit, in the order of their incarnations.
  std::vector<Player*> members();
  std::size_t living() const;  // without leavers
  std::vector<int> processes() const;
  std::list<Player>& players() { return players_; }

  // Returns whether a segment would have no copy at a process that can go on, if these went.
  bool last_copies(const std::vector<const Player*>& taken) const;

 private:
  std::list<Player> players_;  // addresses stay
  event::EpochFormed epoch_;   // the last one told of
  std::set<std::uint64_t> elsewhere_;
  std::multimap<int, double> gone_;  // a pid may stand here twice
  std::set<int> watched_;            // processes that have computed and are there
  double now_ = 0;
};

// Returns whether a worker's process may end with this,
// given what was done to it. `run_status`: of the run.
bool explained(const judge::ProcessEnd& end, const Player& player, int run_status);

// Returns workers that were left out of an epoch while stopped or cut off, and then woke up.
std::vector<judge::Revenant> revenants_of(const judge::Story& story,
                                          const std::vector<judge::Deed>& deeds,
                                          const std::multimap<int, double>& gone);

}  // namespace starling::chaos
