#pragma once
// A worker without its actor: carries out what elastic::Worker decides, with real sums, state,
// connections and messages. The worker actor owns one and feeds it (actors/worker/worker.h).
//
// Threads: everything runs in one thread, the owner's. Callbacks of meshes and of the trainer come
// from elsewhere and go through EngineCalls::post.

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "actors/worker/epoch_io.h"
#include "actors/worker/orders.h"
#include "actors/worker/pause_clock.h"
#include "actors/worker/setup.h"
#include "actors/worker/step_clock.h"
#include "collectives/tcp/listener.h"
#include "core/observe/log.h"
#include "elastic/protocol/worker.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"
#include "kernels/grid/totals.h"

namespace starling::actors {

struct EngineCalls {
  // To all, or to one: its number, modulo how many there are.
  std::function<void(const Message&, std::optional<std::uint32_t>)> to_coordinators;
  std::function<void(ComputeOrder)> compute;
  std::function<void(MeshEvent)> post;  // from any thread; comes back through on_mesh()
  std::function<void(const elastic::worker_command::Exit&)> over;  // once, last
  std::function<void(std::uint64_t)> set_counter;  // the incarnation got its counter
  // On some other thread; come back through on_shard() and on_loaded().
  std::function<void(ShardOrder)> write_shard;
  std::function<void(LoadOrder)> load;
};

struct EngineOptions {
  std::shared_ptr<const TrainingSetup> setup;
  JobId job_id{};
  Join join;  // incarnation, host and port of `listener`
  std::chrono::milliseconds connect_timeout{5000};
  std::atomic<WorkPhase>* phase = nullptr;  // kept up to date if set
  std::vector<StepTimes>* times = nullptr;  // of each step, if set
};

class Engine : private collectives::GatherSource {
 public:
  Engine(EngineOptions options, collectives::Listener& listener, EngineCalls calls, Log log);
  ~Engine() override;

  void start();
  void tick();
  void on_message(const Message& message);
  void on_mesh(MeshEvent event);
  // `took`: a micro-batch's part of the time of all compute threads.
  void on_micro_batch(Version version, const LedgerRow& row, std::chrono::nanoseconds took);
  void on_notice(const Notice& notice);
  void on_data(const Digest& data);
  void on_shard(ShardDone done);
  void on_loaded(const LoadDone& done);
  // Closes all connections at once, without a word to anybody. Nothing happens after it.
  void stop();

  // For the trainer's threads. Parameters are written only while nothing is computed.
  const kernels::State& state() const { return state_; }
  kernels::Accumulators& accumulators() { return accumulators_; }
  const elastic::Worker& worker() const { return worker_; }
  const std::string& name() const { return options_.join.name; }
  // What is there when the engine is over, and its digest; Exit::trained says whether they are the
  // parameters of the last version.
  std::span<const float> parameters() const { return state_.parameters(); }
  Digest parameters_digest() const;

 private:
  void handle(elastic::WorkerEvent event);
  void feed_time();

  void execute(const elastic::worker_command::ToCoordinators& c);
  void execute(const elastic::worker_command::Initialise& c);
  void execute(const elastic::worker_command::Hold& c);
  void execute(const elastic::worker_command::Connect& c);
  void execute(const elastic::worker_command::SetVersion& c);
  void execute(const elastic::worker_command::SayReady& c);
  void execute(const elastic::worker_command::Leave& c);
  void execute(const elastic::worker_command::Stop& c);
  void execute(const elastic::worker_command::Compute& c);
  void execute(const elastic::worker_command::OpenStep& c);
  void execute(const elastic::worker_command::StartReduce& c);
  void execute(const elastic::worker_command::SendMove& c);
  void execute(const elastic::worker_command::SendLedger& c);
  void execute(const elastic::worker_command::ComputeNorm& c);
  void execute(const elastic::worker_command::SendVote& c);
  void execute(const elastic::worker_command::Apply& c);
  void execute(const elastic::worker_command::ClearAccumulators& c);
  void execute(const elastic::worker_command::DropTotals& c);
  void execute(const elastic::worker_command::StartGather& c);
  void execute(const elastic::worker_command::ComputeDigest& c);
  void execute(const elastic::worker_command::WriteCheckpoint& c);
  void execute(const elastic::worker_command::Exit& c);

  // Until one of them has closed the epoch (R1).
  void take(EpochIo& io, collectives::EpochEvents events);
  void take(EpochIo& io, const collectives::epoch_event::Reduced& e);
  void take(EpochIo& io, collectives::epoch_event::GatherBegun& e);
  void take(EpochIo& io, const collectives::epoch_event::Gathered& e);
  void take(EpochIo& io, const collectives::epoch_event::MoveArrived& e);
  void take(EpochIo& io, collectives::epoch_event::LedgerArrived& e);
  void take(EpochIo& io, collectives::epoch_event::VoteArrived& e);
  void take(EpochIo& io, const collectives::epoch_event::PeerReady& e);
  void take(EpochIo& io, const collectives::epoch_event::Wrong& e);
  void give_up(EpochIo& io, Rank peer, const std::string& why);
  void close(const EpochId& epoch);
  void at(WorkPhase phase);
  // What this worker holds is not what it was given: its life ends, with a line that says so.
  void end_damaged(const char* what, SegmentId segment);
  // Finds memory on a thread that lets others go first: what the plan gives this worker to hold
  // and, the first time, what every step writes. A huge page takes a machine that lends its
  // memory out up to 10 ms, which else the first step of an epoch waits for.
  void prepare_memory(const Plan& plan, Rank self);
  // Keeps the lease during long work: a heartbeat, if one is due.
  void breathe();

  // GatherSource
  Bytes params(SegmentRange segments) override;
  Result<> set_params(Version version, SegmentRange segments, ByteView bytes) override;

  const EngineOptions options_;
  const Layout& layout_;
  collectives::Listener& listener_;
  const EngineCalls calls_;
  const Log log_;

  elastic::Worker worker_;
  std::deque<elastic::WorkerEvent> events_;
  bool handling_ = false;
  bool over_ = false;

  kernels::State state_;
  kernels::Accumulators accumulators_;
  kernels::Totals totals_;
  std::map<EpochId, std::unique_ptr<EpochIo>> epochs_;
  std::vector<std::unique_ptr<EpochIo>> closed_;  // until the next tick
  // A copy of the owned state, one at most: being filled, written or waiting for the next
  // checkpoint.
  std::shared_ptr<SegmentStates> staged_;
  bool keep_parameters_ = false;  // complete already, may be being read: do not write

  const std::chrono::steady_clock::time_point began_;
  PauseClock pause_;
  StepClock clock_;
  std::chrono::steady_clock::time_point passed_;
  std::chrono::steady_clock::time_point breathed_;
  std::optional<LoadOrder> loading_;
  bool prepared_ = false;  // once: what every step writes
  std::atomic<bool> is_preparing_ = false;
  std::jthread preparing_;
};

}  // namespace starling::actors
