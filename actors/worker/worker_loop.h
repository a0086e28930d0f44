#pragma once
// WorkerLoop is a worker without its actor: it lets elastic::Worker decide, and hands the
// decisions to the data plane (state, sums, connections), the coordinators, compute threads
// and the archive. The worker actor owns one and feeds it (actors/worker/worker.h).
//
// No call here takes long, so coordinators hear a worker whatever it works at.
//
// Threads: all runs in one thread, the owner's. Events of the data
// plane come from its thread and go through WorkerLoopCalls::post.

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/worker/data_plane.h"
#include "actors/worker/orders.h"
#include "actors/worker/pause_clock.h"
#include "actors/worker/worker_parts.h"
#include "core/base/tenfold.h"
#include "core/observe/log.h"
#include "elastic/protocol/worker.h"

namespace starling::actors {

struct WorkerLoopCalls {
  // Sends to all, or to one: its number, modulo how many there are.
  std::function<void(const Message&, std::optional<std::uint32_t>)> to_coordinators;
  std::function<void(ComputeOrder)> compute;
  std::function<void(EvaluateOrder)> evaluate;
  std::function<void(DataPlaneEvent)> post;                        // from any thread
  std::function<void(const elastic::worker_command::Exit&)> over;  // once, last
  std::function<void(std::uint64_t)> set_counter;  // called when the incarnation got its counter
  // These run on some other thread; results come back through on_shard() and on_loaded().
  std::function<void(ShardOrder)> write_shard;
  std::function<void(LoadOrder)> load;
};

struct WorkerLoopOptions : WorkerParts {
  JobId job_id{};
  Join join;  // incarnation, host and port of `listener`
};

class WorkerLoop {
 public:
  WorkerLoop(WorkerLoopOptions options, collectives::Listener& listener, WorkerLoopCalls calls,
             Log log);
  ~WorkerLoop();
  WorkerLoop(const WorkerLoop&) = delete;
  WorkerLoop& operator=(const WorkerLoop&) = delete;

  void start();
  void tick();
  void on_message(const Message& message);
  void on_data_plane(DataPlaneEvent said);
  // `took`: a micro-batch's share of the time of all compute threads.
  void on_micro_batch(Version version, const LedgerRow& row, std::chrono::nanoseconds took);
  // Tells that one of ComputeOrder::again is over, or was dropped before it was begun.
  void on_again(Version version, const LedgerRow& row, bool begun);
  void on_evaluated(Version version, std::vector<double> values);
  void on_notice(const Notice& notice);
  void on_data(const Digest& data);
  void on_shard(ShardDone done);
  void on_loaded(LoadDone done);
  // Closes all connections, without a word to the other ends. Nothing happens after it.
  void stop();

  // Shared with compute threads, which may work at it for longer than the loop is there.
  std::shared_ptr<Workbench> workbench() const { return data_plane_.workbench(); }
  const elastic::Worker& worker() const { return worker_; }
  // Valid when the loop is over: the memory, unless the data plane's thread hangs (null).
  // Exit::trained says whether the working parameters are those of the last version.
  WorkerMemory* memory() { return stopped_ ? &data_plane_.memory() : nullptr; }

 private:
  void handle(elastic::WorkerEvent event);
  void feed_time();

  void execute(elastic::worker_command::ToCoordinators& c);
  void execute(elastic::worker_command::Initialise& c);
  void execute(elastic::worker_command::Connect& c);
  void execute(elastic::worker_command::Stop& c);
  void execute(elastic::worker_command::Compute& c);
  void execute(elastic::worker_command::Evaluate& c);
  void execute(elastic::worker_command::EndShare& c);
  void execute(elastic::worker_command::Exit& c);
  // The data plane gets all other commands; a command that neither takes does not compile.
  template <class Command>
  void execute(Command& c) {
    data_plane_.post(std::move(c));
  }

  const WorkerLoopOptions options_;
  const WorkerLoopCalls calls_;
  const Log log_;

  elastic::Worker worker_;
  std::deque<elastic::WorkerEvent> events_;
  bool handling_ = false;
  bool over_ = false;
  Tenfold unwritten_;     // shards of checkpoints in a row
  bool stopped_ = false;  // true also means: the data plane's thread has ended

  const std::chrono::steady_clock::time_point began_;
  PauseClock pause_;
  std::chrono::steady_clock::time_point passed_;
  std::chrono::nanoseconds computing_{};  // the time of all micro-batches of the step together
  std::optional<LoadOrder> loading_;
  DataPlane data_plane_;  // last: its thread calls until it is gone
};

}  // namespace starling::actors
