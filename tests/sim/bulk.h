#pragma once
// The bulk connections of the simulated world: one per epoch and pair of workers, reliable and in
// order until it breaks. What is under way when an end closes or dies arrives in part.

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "core/base/ids.h"
#include "tests/sim/frames.h"
#include "tests/sim/random.h"
#include "tests/sim/settings.h"

namespace starling::sim {

class World;
class WorkerProcess;

class Bulk {
 public:
  Bulk(World& world, std::uint64_t seed) : world_(world), random_(seed, /*purpose=*/11) {}

  // Dials, or waits to be dialled by, one peer; the process hears on_up or on_broken.
  void connect(WorkerProcess& self, Rank self_rank, const EpochId& epoch, Nonce peer_nonce,
               Rank peer_rank);
  void send(WorkerProcess& from, const EpochId& epoch, Nonce to_nonce, BulkFrame frame);
  // This end of one or all connections of the epoch is gone; the peers see end of file.
  void close(WorkerProcess& self, const EpochId& epoch, Micros end_of_file);
  void close_one(WorkerProcess& self, const EpochId& epoch, Nonce peer_nonce);
  void close_all(WorkerProcess& self, Micros end_of_file);  // the process died
  // Both ends see one connection break. False if there is none.
  bool break_one();
  // One direction of one connection delivers nothing for a while, and then everything.
  bool stall_one(Micros duration);
  // The same for scripts: from one worker to another; and both ends see theirs break.
  void stall(const WorkerProcess& from, const WorkerProcess& to, Micros duration);
  void break_between(const WorkerProcess& a, const WorkerProcess& b);
  // A partition began: connections across it break if it lasts.
  void on_partition();
  // Two workers were cut off from each other alone: if it lasts, each end of their connections that
  // hears nothing breaks it, as one that is silent.
  void on_cut();

  // Whether a connection with this life was not made in time.
  bool unreached(Nonce nonce) const { return unreached_.count(nonce) != 0; }

 private:
  struct Item {
    Micros due = 0;
    bool end_of_file = false;
    BulkFrame frame;
  };
  struct Direction {  // towards one end
    std::deque<Item> queue;
    bool pumping = false;
    Micros stalled_until = 0;
  };
  struct End {
    WorkerProcess* process = nullptr;
    Rank rank = 0;  // of this end's process
    bool open = false;
  };
  struct Pair {
    EpochId epoch;
    End ends[2];
    Direction towards[2];
    bool up = false, broken = false;
  };
  using Key = std::tuple<EpochId, Nonce, Nonce>;

  static Key key_of(const EpochId& epoch, Nonce a, Nonce b);
  static int side_of(Nonce self, Nonce peer) { return self < peer ? 0 : 1; }
  void try_establish(const Key& key);
  void connect_deadline(const Key& key, int side);
  void close_end(const Key& key, Pair& pair, int side, Micros end_of_file);
  void break_pair(const Key& key, Pair& pair);
  void fall_silent(const Key& key, int side);
  void put(const Key& key, Pair& pair, int towards, Item item);
  void pump(const Key& key, int towards);
  bool blocked(const Pair& pair, int towards) const;

  World& world_;
  Random random_;
  std::map<Key, Pair> pairs_;
  std::set<Nonce> unreached_;
};

}  // namespace starling::sim
