#pragma once
// LeaderConfig is what a leader knows of its job, and how long it waits for what.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/job/sections.h"
#include "elastic/membership/placement.h"
#include "elastic/protocol/bugs.h"

namespace starling::elastic {

struct LeaderConfig {
  ElasticSpec elastic;
  CheckpointSpec checkpoint;
  std::uint32_t micro_batches = 0;
  std::uint64_t steps = 0;
  std::uint32_t segments = 0;
  std::uint32_t replicas = 2;         // r
  std::uint32_t wanted_workers = 1;   // the first epoch waits for them
  std::uint32_t bucket_segments = 0;  // segments of a bucket (Layout); 0 = one bucket
  std::uint32_t move_budget = 64;     // segments a source sends in one step
  std::uint64_t report_deadline_ms = 1000;
  std::uint64_t change_window_ms = 100;  // joins and leaves are gathered this long
  // A leader sends a message again when no answer has come for this time; a plan after twice as long each time.
  std::uint64_t retry_ms = 50;
  std::uint64_t restart_window_ms = 2000;  // after state was lost, joiners are gathered this long
  bool stop_on_nonfinite = false;          // a skipped step ends the job
  // The model's gradient is a function of step, micro-batch and parameters alone, so a worker that
  // computes another one is wrong, and is left out. False: the model may keep state.
  bool pure_model = false;
  std::uint64_t job_hash = 0;
  std::string job_text;
  std::vector<std::string> tensors;  // name of each segment's first tensor, for messages
  Bugs bugs;

  // Returns what a placement takes of the job, without members and copies.
  PlacementInput placement() const {
    PlacementInput in;
    in.segments = segments;
    in.bucket_segments = bucket_segments;
    in.replicas = replicas;
    in.budget = move_budget;
    return in;
  }
};

}  // namespace starling::elastic
