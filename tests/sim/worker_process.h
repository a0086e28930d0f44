#pragma once
// One life of a worker in the simulated world: the machine under test (elastic::Worker), the frame
// handlers under test (collectives::Reduce, Gather), and between them what an actor does in
// production: carry out commands, answer with events.
//
// Everything that reaches the process goes through its inbox, in order; a paused process leaves it
// there.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/gather.h"
#include "collectives/reduce.h"
#include "collectives/tcp/session.h"
#include "elastic/protocol/worker.h"
#include "tests/sim/frames.h"
#include "tests/sim/random.h"
#include "tests/sim/settings.h"
#include "tests/sim/store.h"

namespace starling::sim {

class World;

// One epoch's connections and the collectives on them.
struct Link {
  std::shared_ptr<const Plan> plan;
  Rank self = 0;
  bool joiner = false;
  Rank up = 0;  // connections that stand
  bool connected = false;
  bool stopping = false;        // Stop was asked, Stopped not yet answered
  bool left = false;            // LEFT was sent: nothing that arrives here counts any more (R1)
  std::vector<bool> peer_left;  // by rank
  std::optional<collectives::Session> session;  // none: not entered yet, everything is held
  std::vector<collectives::Arrival> held;
  std::vector<collectives::Arrival> waiting;  // of the current version, for a collective to begin
  std::unique_ptr<collectives::Reduce> reduce;
  Version reduce_version = kNoVersion;
  collectives::Holders reduce_holders;
  bool reduced = false;
  std::unique_ptr<collectives::Gather> gather;
  Version gather_version = kNoVersion;
  bool gather_started = false, gathered = false, keep = false;

  Rank world() const { return static_cast<Rank>(plan->members.size()); }
};

class WorkerProcess : public collectives::GatherSource {
 public:
  WorkerProcess(World& world, std::uint32_t slot, std::uint64_t nonce);
  ~WorkerProcess() override;

  void start();
  // Runs now, or when the process wakes up; never after its death.
  void submit(std::function<void()> action);
  void handle(const elastic::WorkerEvent& event);
  void receive(const Message& message, std::uint64_t to_nonce);

  // The bulk network's calls.
  void on_up(const EpochId& epoch);
  void on_end_of_file(const EpochId& epoch, std::uint64_t peer_nonce);
  void on_frame(const EpochId& epoch, std::uint64_t from_nonce, const BulkFrame& frame);

  void pause(Micros duration);
  // Nothing is computed or loaded until then; what is begun does not end. All else goes on.
  void hang(Micros duration);
  // For how long it has been so.
  Micros hung_for() const;
  void kill(const char* why);

  std::uint32_t slot() const { return slot_; }
  std::uint32_t place() const;  // in the network
  std::uint64_t nonce() const { return who_.nonce; }
  const Incarnation& who() const { return who_; }
  bool alive() const { return alive_; }
  const elastic::Worker& machine() const { return machine_; }
  const Store& store() const { return store_; }
  Store& store() { return store_; }
  const std::map<EpochId, Link>& links() const { return links_; }
  bool computing() const { return computing_.has_value(); }
  std::optional<Micros> notice_end;  // set by the world

  // collectives::GatherSource, for the gather that is being fed.
  Bytes params(SegmentRange segments) override;
  Result<> set_params(SegmentRange segments, ByteView bytes) override;
  Result<> on_first(Version version, ByteView record) override;

 private:
  struct Sender;  // collectives::Transport of one link

  void drain_inbox();
  void run_commands(const elastic::WorkerCommands& commands);
  void run(const elastic::worker_command::ToCoordinators& c);
  void run(const elastic::worker_command::Initialise& c);
  void run(const elastic::worker_command::Hold& c);
  void run(const elastic::worker_command::Connect& c);
  void run(const elastic::worker_command::SetVersion& c);
  void run(const elastic::worker_command::SayReady& c);
  void run(const elastic::worker_command::Leave& c);
  void run(const elastic::worker_command::Stop& c);
  void run(const elastic::worker_command::Compute& c);
  void run(const elastic::worker_command::OpenStep& c);
  void run(const elastic::worker_command::StartReduce& c);
  void run(const elastic::worker_command::SendMove& c);
  void run(const elastic::worker_command::SendLedger& c);
  void run(const elastic::worker_command::ComputeNorm& c);
  void run(const elastic::worker_command::SendVote& c);
  void run(const elastic::worker_command::Apply& c);
  void run(const elastic::worker_command::ClearAccumulators& c);
  void run(const elastic::worker_command::DropTotals& c);
  void run(const elastic::worker_command::StartGather& c);
  void run(const elastic::worker_command::ComputeDigest& c);
  void run(const elastic::worker_command::WriteCheckpoint& c);
  void run(const elastic::worker_command::Exit& c);

  void later(Micros delay, elastic::WorkerEvent event);
  void tick();
  void compute_next();
  Micros micro_batch_time();
  void forget_work();
  void when_not_hung(std::function<void()> action);
  void finish_micro_batch(Version version, MicroBatch m, std::uint64_t params_hash, Micros took);
  void load(const elastic::worker_command::Initialise& c);
  Link* link(const EpochId& epoch);
  void send_all(const Link& link, FrameKind kind, Version version, const Bytes& payload);
  void send_one(const Link& link, Rank to, const FrameHeader& header, const Bytes& payload);
  void arrive(Link& link, Rank from, const EpochId& sent_in, const Frame& frame);
  void deliver(Link& link, Result<std::vector<collectives::Arrival>> arrivals);
  void deliver_one(Link& link, const collectives::Arrival& arrival);
  void release_waiting(Link& link, bool (*wanted)(FrameKind));
  void take_move(Link& link, const Frame& frame);
  void check_collective(Link& link, const Result<>& result, Rank from);
  void after_collective(Link& link);
  void redirect(const BulkFrame& frame, std::uint64_t from_nonce);
  void end_life(bool guard_reports, Micros end_of_file);

  World& world_;
  const std::uint32_t slot_;
  Incarnation who_;
  Random random_;
  elastic::Worker machine_;
  Store store_;
  std::map<EpochId, Link> links_;
  Link* feeding_ = nullptr;  // whose gather calls back
  bool alive_ = true;
  Micros paused_until_ = 0;
  Micros hung_since_ = 0, hung_until_ = 0;
  std::deque<std::function<void()>> inbox_;
  std::deque<elastic::WorkerEvent> events_;  // caused by commands that are being carried out
  bool handling_ = false;
  // The compute thread.
  std::uint64_t slowness_ = 1;  // until slowness_end_
  Micros slowness_end_ = 0;
  Version queue_version_ = 0;
  std::deque<MicroBatch> queue_;
  std::optional<std::pair<Version, MicroBatch>> computing_;
  std::uint64_t aborted_ = 0;  // times; only where R8 is broken on purpose
};

}  // namespace starling::sim
