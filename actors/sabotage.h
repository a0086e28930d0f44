#pragma once
// Promises broken on purpose, so that tests see whoever judges a run notice it. Off unless the
// environment says otherwise; nothing else in Starling asks the environment how to behave.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/ids.h"

namespace starling::actors {

enum class Sabotage : std::uint8_t {
  kNone,
  kDropMicroBatch,   // a micro-batch counts as added, its gradient is not
  kDoubleTotal,      // every total of the step is applied twice over
  kStaleParameters,  // a gather's parameters are not taken
  kFlipState,        // a bit of the state of a held segment
  kFlipTotal,        // a bit of a total, between reduce and apply
  kFlipParameters,   // a bit of the working parameters, while micro-batches are computed
  kCorruptReplica,   // weights of all segments held as a replica, as if computed so
  kIgnoreFence,      // who was left out stays
  kLeaveProcess,     // a worker's end leaves a process behind
  kAcceptStranger,   // coordinators let in who has no key of the job
};

struct SabotageOrder {
  Sabotage kind = Sabotage::kNone;
  Version version = 0;  // of the step in which it is done, once
  std::string worker;   // by this worker alone; empty = by all
};

// "KIND", "KIND@VERSION" or "KIND@VERSION@WORKER", as in "flip-state@20@worker-1"; none if it is
// not understood.
std::optional<SabotageOrder> parse_sabotage(std::string_view text);

// Once, in its step: what STARLING_SABOTAGE orders. Any thread.
bool sabotage_due(Sabotage kind, Version version, std::string_view worker);
// At any time, for what has no step.
bool sabotage_ordered(Sabotage kind, std::string_view worker = {});

}  // namespace starling::actors
