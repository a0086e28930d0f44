#pragma once
// A worker's loop sends these orders to the threads around it, and gets these answers.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/base/step_record.h"
#include "core/job/segment_values.h"
#include "core/wire/messages.h"
#include "elastic/protocol/worker.h"

namespace starling::actors {

// Orders micro-batches to compute, in this order; replaces those that have not begun.
struct ComputeOrder {
  Version version = 0;
  std::vector<MicroBatch> micro_batches;
  std::uint8_t scale = 0;  // log2 of what their loss is multiplied by
  // Computed after `micro_batches`: elastic::worker_command::Compute::again.
  std::vector<MicroBatch> again{};
};

// Orders all held-out batches to be computed with the parameters of the job's last version.
struct EvaluateOrder {
  Version version = 0;
};
struct EvaluationDone {
  Version version = 0;
  std::vector<double> values;  // loss and metrics
  std::string error;           // not empty: the data or the model failed
  Code error_code = Code::kBadInput;
};

// Orders a shard to be written; ShardDone says how that ended.
struct ShardOrder {
  Version version = 0;
  StepRecord record;  // of step version-1
  std::string file;
  std::shared_ptr<SegmentStates> states;
};
struct ShardDone {
  ShardWritten written;
  std::shared_ptr<SegmentStates> states;  // given back: the memory of the next shard
};

// The data plane's thread reports these events (actors/worker/data_plane.h).
using DataPlaneEvent = std::variant<elastic::WorkerEvent, ShardOrder>;

// Orders state to be loaded from the checkpoint of `version`; LoadDone says how that ended.
struct LoadOrder {
  EpochId epoch;
  Version version = 0;
  std::vector<SegmentId> segments;
  // Counts the segments read so far: the reader raises it, the waiting loop looks at it.
  std::shared_ptr<std::atomic<std::uint32_t>> read;
};
struct LoadDone {
  EpochId epoch;
  Version version = 0;
  StepRecord record;                      // of step version-1
  std::shared_ptr<SegmentStates> states;  // null: `error` says why
  std::string error;
  bool here = false;  // true: this worker cannot reach the folder; false: the checkpoint is damaged
};

}  // namespace starling::actors
