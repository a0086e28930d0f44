#pragma once
// The simulated world: coordinators, workers, their guards, networks, disks and clocks in one
// thread, driven by one 64-bit seed and one queue of (virtual time, sequence). The code under test
// is the code that production runs: elastic::Coordinator (with Raft), elastic::Worker,
// collectives::Session, Reduce and Gather, core/wire/step_codec.h, and in some runs
// core/wire/codec.h.
//
// Replaying a seed (the failing test prints the line):
//   STARLING_SIM_SEED=123 sim_tests -tc='swarm*'        one seed, with a trace of every event
//   STARLING_SIM_SEEDS=1000:500 sim_tests -tc='swarm*'  500 seeds from 1000
//   STARLING_SIM_TRACE=1 sim_tests -tc='rules: R14*'    the traces of a directed schedule
//   STARLING_SIM_SEARCH=1:700 sim_tests -tc='rules: each*'  looks for seeds that notice each fault
//   STARLING_SIM_RULE=R12 with it: of the rules with this in their name
// A run is a function of its Settings alone: same seed, same event hash.
//
// Simulated: lost, doubled, late and reordered control messages; one-way and group partitions; bulk
// connections that break with a part of their data under way; killed, paused and fenced workers;
// device transports that fail, hang, bring garbage or are ready late; guards that report a death,
// or die too; announced leaves whose notice ends; joiners; slow disks; coordinators that crash,
// losing what was not yet synced, and some of them all that was; checkpoints on shared storage,
// some of them damaged, and what an earlier run left there. Not simulated: bytes of bulk frames
// that flip (checksums are tested where they are), and bytes of moved state, votes and ledgers (the
// actors').
//
// Files: settings.h what a run is drawn from; swarm.cpp the draw; numbers.h the toy model and the
// undisturbed run; store.h a worker's memory; worker_process.h, coordinator_process.h the
// processes; bulk.h the connections; faults.h what goes wrong; oracle.h what must never be seen;
// shared_storage.h the checkpoints; schedule.h directed schedules.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "tests/collectives/memory_transport.h"
#include "tests/sim/bulk.h"
#include "tests/sim/coordinator_process.h"
#include "tests/sim/faults.h"
#include "tests/sim/numbers.h"
#include "tests/sim/oracle.h"
#include "tests/sim/random.h"
#include "tests/sim/settings.h"
#include "tests/sim/shared_storage.h"
#include "tests/sim/worker_process.h"

namespace starling::sim {

// Points in a worker's life at which it may be killed, or a script may step in.
enum class Moment : std::uint8_t {
  kJoining,     // join sent
  kConnecting,  // dialling an epoch's peers
  kComputed,    // a micro-batch is done
  kReducing,    // own contribution sent
  kMoveSent,
  kMoveArrived,
  kVoted,          // vote sent
  kApplied,        // passed, nothing gathered yet
  kGathering,      // own parameters sent
  kJoinerEntered,  // first gather frame at a joiner
  kSaidReady,
  kSwitched,  // LEFT sent
  kStopped,
  kReported,
  kLeaveAnnounced,
  kFinished,  // digest sent
  kCount,
};
const char* name_of(Moment moment);
std::string slot_name(std::uint32_t slot);  // of the key of a slot's workers

struct Outcome {
  std::string violation;  // empty: none
  std::uint64_t event_hash = 0;
  std::uint64_t events = 0;
  Micros ended_at = 0;
  int exit_code = -1;  // of the job; -1: it did not end
  std::map<std::string, std::uint64_t> coverage;
};

class World {
 public:
  explicit World(const Settings& settings, bool trace = false);
  ~World();

  // Runs until every process has ended, something is violated, or the deadline.
  Outcome run();

  // ---- For scripts --------------------------------------------------------------------------
  std::function<void(WorkerProcess&, Moment, Version)> on_moment;
  // Called after every event.
  std::function<void()> on_event;
  // Whether a worker's word to coordinators is lost.
  std::function<bool(const WorkerProcess&, const Message&)> loses;
  WorkerProcess& start_worker(std::uint32_t slot);
  void announce_leave(WorkerProcess& worker, Micros notice);
  void crash_coordinator(std::uint32_t index, Micros down);
  void block(std::uint32_t from_place, std::uint32_t to_place, Micros until);
  void heal();
  // What coordinators say to each other comes later by this, until then.
  void make_late(const Span& by, Micros until) { late_ = by, late_until_ = until; }
  WorkerProcess* worker_in(std::uint32_t slot);  // the living one, or null
  CoordinatorProcess* leader();
  CoordinatorProcess& coordinator(std::uint32_t index) { return *coordinators_[index]; }
  std::uint32_t place_of_worker(std::uint32_t slot) const { return settings_.coordinators + slot; }
  Bulk& bulk() { return bulk_; }
  std::uint64_t counted(const std::string& what) const {
    const auto at = coverage_.find(what);
    return at == coverage_.end() ? 0 : at->second;
  }

  // ---- For the processes --------------------------------------------------------------------
  const Settings& settings() const { return settings_; }
  const Numbers& numbers() const { return numbers_; }
  Oracle& oracle() { return oracle_; }
  SharedStorage& storage() { return storage_; }
  collectives::MemoryTransports& transports() { return transports_; }
  const std::vector<Checkpoint>& left() const { return left_; }  // by an earlier run
  Micros now() const { return now_; }
  std::uint64_t now_ms() const { return now_ / kMs + 1; }  // machines take 0 for "never"
  void at(Micros time, std::function<void()> action);
  void after(Micros delay, std::function<void()> action) { at(now_ + delay, std::move(action)); }
  static Micros draw(Random& random, const Span& span) { return random.range(span.low, span.high); }
  bool blocked(std::uint32_t from_place, std::uint32_t to_place) const;
  bool blocked_for(std::uint32_t from_place, std::uint32_t to_place, Micros time) const;
  // Whether no coordinator could hear that place for at least so long.
  bool unheard_for(std::uint32_t place, Micros time) const;
  // Whether one of two places has heard nothing of the other for at least so long.
  bool cut_off_for(std::uint32_t place, std::uint32_t other, Micros time) const;
  bool any_block() const { return !blocks_.empty(); }
  // One control message: may be lost, doubled, late.
  void transmit(std::uint32_t from_place, std::uint32_t to_place, std::function<void()> deliver);
  // To all coordinators, or to one, by its number modulo theirs.
  void worker_says(const WorkerProcess& from, const Message& body,
                   std::optional<std::uint32_t> turn = {});
  void coordinator_says(std::uint32_t from, const Incarnation& to, const Message& body);
  void raft_says(const RaftMessage& message);
  void guard_reports(std::uint32_t slot, const Incarnation& who);
  void ended(WorkerProcess& process, const elastic::worker_command::Exit& exit);
  void moment(WorkerProcess& process, Moment moment, Version version);
  void count(const std::string& what) { ++coverage_[what]; }
  void mix(std::uint64_t value) { hash_ = mix64(hash_, value); }
  bool tracing() const { return trace_; }
  void trace(const std::string& who, const std::string& what) const;
  const std::vector<std::unique_ptr<WorkerProcess>>& workers() const { return workers_; }
  const std::vector<std::unique_ptr<CoordinatorProcess>>& coordinators() const {
    return coordinators_;
  }
  std::uint32_t alive_workers() const;
  std::uint32_t slots() const { return slots_; }
  // Of lives that start in this slot now. Those of the start do everything together.
  WorkerRole role_of(std::uint32_t slot) const;
  // When the faults are over, nothing but a job's end leaves a role to nobody.
  void keep_roles();
  // A living worker of this kind that nobody has told to go.
  bool any_stays(bool (*does)(WorkerRole)) const;
  // The job's end is committed.
  const JobEnded* job_end() const;

 private:
  struct Queued {
    Micros time;
    std::uint64_t sequence;
    std::function<void()> action;
    bool operator<(const Queued& other) const {  // for a max-heap: the earliest is the largest
      return std::pair(time, sequence) > std::pair(other.time, other.sequence);
    }
  };

  void settle();  // the faults are over
  collectives::TransportFault transport_fault(bool peer_gone);
  bool over() const;
  Message through_codec(const Incarnation& from, const Incarnation& to, const Message& body);

  const Settings settings_;
  const bool trace_;
  Numbers numbers_;
  Random weather_, late_dice_;
  Span late_;
  Micros late_until_ = 0;
  Bulk bulk_;
  Oracle oracle_;
  SharedStorage storage_;
  Random transport_dice_;
  collectives::MemoryTransports transports_;
  std::vector<Checkpoint> left_;
  FaultInjector faults_;
  std::vector<std::unique_ptr<CoordinatorProcess>> coordinators_;
  std::vector<std::unique_ptr<WorkerProcess>> workers_;  // all lives, dead ones too
  std::map<Nonce, WorkerProcess*> by_nonce_;
  std::uint32_t slots_ = 0;
  struct Block {
    Micros since = 0, until = 0;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Block> blocks_;  // from place, to place
  std::priority_queue<Queued> queue_;
  std::uint64_t sequence_ = 0, events_ = 0, lives_ = 0;
  Micros now_ = 0;
  bool settled_ = false;
  std::uint64_t hash_ = 0;
  std::map<std::string, std::uint64_t> coverage_;
};

}  // namespace starling::sim
