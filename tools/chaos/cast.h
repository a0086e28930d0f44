#pragma once
// The processes of a run as they are known from outside: who is there, who may be hit, and whether
// a hit would take the last copy of some state. Keeps books only; signals are sent elsewhere.
//
// Threads: belongs to one thread.

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/chaos/deed.h"

namespace starling::chaos {

// A worker: its guard and, below it, the process that computes. A fenced one lives on under the
// same guard with another process and incarnation.
struct Player {
  std::string name;             // of its key
  std::string node;             // as whom it came, if the plan names nodes
  int guard = 0;                // 0: it is gone, or not known
  int pid = 0;                  // that computes; 0: not known yet
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
  Target target() const { return {name, id, pid != 0 ? pid : guard}; }
  bool can_be_hit() const { return pid != 0 && !killed && !stopped && !leaving && !over; }
};

class Cast {
 public:
  Player& add(std::string name, int guard, double t);
  // The youngest of that name; null: none.
  Player* find(const std::string& name);
  Player* by_guard(int guard);
  Player* by_node(const std::string& node);
  Player* by_process(int pid);

  // After each event of the run and now and then, so that `pid`, `id` and `over` are as they are.
  void learn(const WorkerSeen& seen);
  void learn(const EpochSeen& epoch);
  void look();  // at the processes
  // A worker that is not ours to hit, whose copies count all the same.
  void elsewhere(std::uint64_t id, bool there);

  // When a process that computed was first seen to be gone.
  const std::multimap<int, double>& gone() const { return gone_; }
  void set_time(double t) { now_ = t; }

  // Members of the last epoch that can be hit, in the order of their incarnations.
  std::vector<Player*> members();
  std::size_t living() const;  // without those that leave
  std::vector<int> processes() const;
  std::list<Player>& players() { return players_; }

  // Whether some segment would have no copy at a process that can go on, if these went.
  bool last_copies(const std::vector<const Player*>& taken) const;

 private:
  std::list<Player> players_;  // addresses stay
  EpochSeen epoch_;            // the last one told of
  std::set<std::uint64_t> elsewhere_;
  std::multimap<int, double> gone_;  // process ids come again
  std::set<int> watched_;            // processes that have computed and are there
  double now_ = 0;
};

// Whether a process of a worker may end with this, given what was done to it. `run_status`: of the
// run.
bool explained(const ProcessEnd& end, const Player& player, int run_status);

// Workers that were left out of an epoch while they were stopped or cut off, and then were not.
std::vector<Revenant> revenants_of(const Story& story, const std::vector<Deed>& deeds,
                                   const std::multimap<int, double>& gone);

}  // namespace starling::chaos
