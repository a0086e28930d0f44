#pragma once
// Events of every kind with awkward values, in the order of tests/core/event_lines.jsonl.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/observe/event.h"

namespace starling::samples {

inline constexpr std::uint64_t kMax = ~std::uint64_t{0};
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline Plan plan_of_two() {
  Plan plan;
  plan.id = {3, 2};
  plan.predecessor = {3, 1};
  plan.kind = PlanKind::kForced;
  plan.members.resize(2);
  plan.members[0].who = {5, 11};
  plan.members[0].name = "a";
  plan.members[1].who = {kMax, 12};
  plan.members[1].joiner = true;
  plan.members[1].draining = true;
  plan.holders = {{0, 1}, {0}, {1, 0}, {1}};
  plan.moves.resize(3);
  plan.base = 4;
  plan.begin = BeginAt::kGather;
  plan.cause = "eof of worker 6 \xff";  // not UTF-8
  return plan;
}

inline event::Started started() {
  event::Started start;
  start.job = "[job]\nname = \"x\"\n";
  start.job_hash = 255;
  start.fingerprint = "isa avx2, \"x\"";
  start.name = "x";
  start.steps = 60;
  start.micro_batches = 16;
  start.sequences = 4;
  start.seed = kMax;
  start.samples = 1797;
  start.chunk_samples = 599;
  start.from = 40;
  start.tokens_per_step = 8192;
  start.data = {1, 2};
  start.monotonic_ns = 12345;
  start.address = "tcp://127.0.0.1:7700";
  start.keys = "a/b.keys";
  start.coordinator = "coordinator-1";
  return start;
}

inline std::vector<Event> events() {
  const double nan = std::nan("");
  const EpochId epoch{3, 2};
  std::vector<Event> all{
      started(),
      event::WorkerChanged{5, WorkerChange::kJoined, "a \xff \x01 \xe2\x80\xa8", kMax},
      event::WorkerChanged{6, WorkerChange::kLeft, ""},
      event::WorkerChanged{kMax, WorkerChange::kFenced, "b\\\"", 1},
  };
  for (std::uint8_t phase = 0; phase < 8; ++phase)
    all.push_back(event::WorkerChanged{7u + phase, WorkerChange::kLost, "w", 2, WorkPhase(phase),
                                       phase == 2 ? "no memory;\n\"x\"" : ""});
  event::EpochFormed forced = event::formed(plan_of_two());
  forced.detect_ms = 1.5;
  forced.form_ms = 2.5;
  forced.resume_ms = 1.0 / 3;
  forced.pause = Pause{0.1, 1e-7, 1e300, 5, 0, 12345.678};
  all.push_back(forced);
  Plan plan = plan_of_two();
  plan.id = {3, kMax};
  plan.kind = PlanKind::kPrepared;
  plan.cause = "";
  event::EpochFormed prepared = event::formed(plan);
  prepared.resume_ms = 20.0;
  all.push_back(prepared);
  plan = {};
  plan.id = {1, 1};
  all.push_back(event::formed(plan));
  plan.id = {1, 2};
  plan.begin = BeginAt::kVote;
  plan.base = kMax;
  event::EpochFormed fresh = event::formed(plan);
  fresh.detect_ms = nan;
  fresh.form_ms = kInfinity;
  fresh.resume_ms = -0.0;
  all.push_back(fresh);
  const std::vector<Event> rest{
      event::TransportChosen{epoch, true, "nccl 2.28.9"},
      event::TransportChosen{epoch, false, "\"x\" was not found"},
      event::StepPassed{{3, 1, 2.0, 20, true, 77, {}, {}, {16, 1}}, epoch, 2, 12.5, true},
      event::StepPassed{{4, 0.1, 2.0, 20, false, 77, {5, 6}, {0.25, nan}}, epoch, 2, 12.5},
      event::StepPassed{{5, nan, kInfinity, kMax, true, kMax, {kMax, 0}}, epoch, ~0u, 5e-324},
      event::StepPassed{{6, -0.0, 1.7976931348623157e308, 0, false, 0, {}}, epoch, 1, 3},
      event::StepPassed{
          {kMax - 1, 5e-324, 2.4560000000000004, 1, false, 1, {0, 1}}, {kMax, kMax}, 1, 0},
      event::StepPassed{{7, 1, 2.0, 20, false, 77}, epoch, 2, 12.5, false, 0.00025},
      event::Evaluated{4, 0.1, {0.25, nan}},
      event::Evaluated{kMax, nan},
      event::LedgerPassed{4, epoch, {{0, 5}, {1, kMax}}},
      event::LedgerPassed{5, epoch, {}},
      event::LeaderElected{3, 1, 4711, 300},
      event::LeaderElected{kMax, ~0u, kMax, kMax},
      event::Exposed{epoch, 2, 1, 3},
      event::Exposed{{0, 0}, 0, ~0u, 3},
      event::CheckpointWritten{40, "c/step-000000040"},
      event::Restarted{4, epoch, "state lost with \"a\""},
      event::given({6, 9}, "worker-0", {"aws", "terminate", 1500, true}),
      event::given({6, 9}, "worker-0", {"aws", "rebalance", 0, false}),
      event::given({6, 9}, "worker-0", {"SIGTERM", "", kMax, true}),
      event::Tainted{5, "worker-0", 3, 17, "its data are \"others\""},
      event::Tainted{kMax, "", 0, {}, ""},
      event::Mismatch{12, 3, 5, kMax, 5},
      event::Mismatch{kMax, ~0u, 6, 6, {}},
      event::Warning{"line\nbreak\t\x7f \xc3\xa9 \xed\xa0\x80"},
      event::Warning{""},
      event::Preparing{"worker-4", 4711},
      event::Preparing{"", kMax},
      event::AdminActed{"admin", "drain", "worker-2"},
      event::AdminActed{"admin-ann", "stop", ""},
      event::AdminActed{"admin", "rate", "", 5e-4},
      event::CoordinatorsChanged{41, {0, 2, 3}},
      event::CoordinatorsChanged{kMax, {}},
      event::Dropped{kMax, "they could not be written"},
      event::Done{5, {3, 4}, nan},
      event::Ended{15, 5, Version{4}, "ended by SIGTERM"},
      event::Ended{2, 0, std::nullopt, ""},
      event::Failed{4, "state lost: segment 3 (\"w\")"},
      event::Continued{"coordinator-1", 12345, 17},
      event::WorkerChanged{
          8,
          WorkerChange::kJoined,
          "worker-0",
          2,
          {},
          "",
          Machine{16, kMax, 4096, 1024, 5, 250'000'000, -3, 312'400, "NVIDIA \"H200\""}},
  };
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

}  // namespace starling::samples
