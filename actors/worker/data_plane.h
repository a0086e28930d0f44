#pragma once
// The data plane of a worker is the thread that owns what the worker holds and the connections of
// its epochs, and does all work that is proportional to the model. It carries out orders one after
// the other; their results, and those of frames that arrive, come out as events of elastic::Worker.
//
// The loop (actors/worker/worker_loop.h) never waits for this thread and never touches
// its memory, so coordinators hear a worker however long its work takes. progress() and
// waiting() count its work, so that the leader sees a data plane that makes no progress.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "actors/worker/orders.h"
#include "actors/worker/step_clock.h"
#include "actors/worker/worker_memory.h"
#include "actors/worker/worker_parts.h"
#include "collectives/tcp/listener.h"
#include "core/observe/log.h"
#include "elastic/protocol/worker.h"

namespace starling::actors {

namespace data_plane_order {
// Makes the first parameters and exponents, and the state of
// these segments, which are held from now on. -> Initialised
struct Initialise {
  EpochId epoch;
  std::vector<bool> segments;
};
// Takes state that was read from a checkpoint. -> Initialised or NotInitialised
struct TakeLoaded {
  LoadDone loaded;
};
struct PartAdded {};  // a compute thread was the last to add to some part
struct GiveBack {     // the memory of a shard that was written
  std::shared_ptr<SegmentStates> states;
};
// For the step clock: micro-batches were ordered; the time that the share's took together.
struct ComputingBegun {
  Version version = 0;
  std::uint32_t world = 0;
};
struct ComputingEnded {
  Version version = 0;
  std::chrono::nanoseconds took{};
};
}  // namespace data_plane_order

// Most orders are commands of elastic::Worker as they are.
using DataPlaneOrder =
    std::variant<data_plane_order::Initialise, data_plane_order::TakeLoaded,
                 data_plane_order::GiveBack, data_plane_order::PartAdded,
                 data_plane_order::ComputingBegun, data_plane_order::ComputingEnded,
                 elastic::worker_command::Hold, elastic::worker_command::Connect,
                 elastic::worker_command::SetVersion, elastic::worker_command::SayReady,
                 elastic::worker_command::Leave, elastic::worker_command::Stop,
                 elastic::worker_command::OpenStep, elastic::worker_command::StartReduce,
                 elastic::worker_command::SendMove, elastic::worker_command::EndShare,
                 elastic::worker_command::Compare, elastic::worker_command::ComputeNorm,
                 elastic::worker_command::SendVote, elastic::worker_command::Apply,
                 elastic::worker_command::ClearAccumulators, elastic::worker_command::DropTotals,
                 elastic::worker_command::StartGather, elastic::worker_command::ComputeDigest,
                 elastic::worker_command::WriteCheckpoint>;

// Runs on the data plane's thread. The states of a ShardOrder come back as GiveBack.
using OnDataPlaneEvent = std::function<void(DataPlaneEvent)>;

struct DataPlaneOptions : WorkerParts {
  JobId job_id{};
  Incarnation who;
  std::string name;
};

// Threads: post(), waiting() and workbench() any; the rest belongs to the owner.
class DataPlane {
 public:
  // `listener` must outlive the thread.
  DataPlane(DataPlaneOptions options, collectives::Listener& listener, OnDataPlaneEvent say,
            Log log);
  ~DataPlane();  // stop()
  DataPlane(const DataPlane&) = delete;
  DataPlane& operator=(const DataPlane&) = delete;

  void post(DataPlaneOrder order);
  // Counts orders and frames that are not done yet.
  std::uint32_t waiting() const;
  // Grows with every piece of work that is done, here and at the workbench.
  std::uint64_t progress() const;
  std::shared_ptr<Workbench> workbench() const;

  // Closes all connections without a word, forgets all orders and ends the thread
  // after its present work. No event comes after it. False: that work hangs; the
  // thread keeps its memory and its connections until the process ends.
  bool stop();
  // Valid after stop() returned true: the memory as the thread left it.
  WorkerMemory& memory();

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
  std::thread thread_;
  bool ended_ = false;
};

}  // namespace starling::actors
