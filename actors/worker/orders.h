#pragma once
// What a worker's loop asks of the threads around it, and what they answer.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "core/base/step_record.h"
#include "core/job/segment_values.h"
#include "core/wire/messages.h"
#include "elastic/protocol/worker.h"

namespace starling::actors {

// Micro-batches to compute, in this order; replaces what has not begun.
struct ComputeOrder {
  Version version = 0;
  std::vector<MicroBatch> micro_batches;
  std::uint8_t scale = 0;  // log2 of what their loss is multiplied by
  // After them: elastic::worker_command::Compute::again.
  std::vector<MicroBatch> again{};
};

// A shard to be written, and what came of it.
struct ShardOrder {
  Version version = 0;
  StepRecord record;  // of step version-1
  std::string file;
  std::shared_ptr<SegmentStates> states;
};
struct ShardDone {
  ShardWritten written;
  std::shared_ptr<SegmentStates> states;  // back: the memory of the next one
};

// What the data plane's thread has to say (actors/worker/data_plane.h).
using DataPlaneEvent = std::variant<elastic::WorkerEvent, ShardOrder>;

// State to be loaded from the checkpoint of `version`, and what came of it.
struct LoadOrder {
  EpochId epoch;
  Version version = 0;
  std::vector<SegmentId> segments;
  // How many of them have been read so far: whoever reads counts, whoever waits looks.
  std::shared_ptr<std::atomic<std::uint32_t>> read;
};
struct LoadDone {
  EpochId epoch;
  Version version = 0;
  StepRecord record;                      // of step version-1
  std::shared_ptr<SegmentStates> states;  // null: `error` says why
  std::string error;
  bool here = false;  // the folder cannot be reached from here; else what is in it is damaged
};

}  // namespace starling::actors
