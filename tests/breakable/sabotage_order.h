#pragma once
// What STARLING_SABOTAGE orders in the breakable build. Nothing else in Starling asks the
// environment how to behave, and the shipped command does not ask it for this.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/ids.h"

namespace starling::actors::sabotage {

enum class Kind : std::uint8_t {
  kNone,
  kDropMicroBatch,   // a micro-batch counts as added, its gradient is not
  kDoubleTotal,      // every total of the step is applied twice over
  kStaleParameters,  // a gather's parameters are not taken
  kFlipState,        // a bit of the state of a held segment
  kFlipSums,         // a bit of what was added up, before it is sent
  kFlipTotal,        // a bit of a total, between reduce and apply
  kFlipParameters,   // a bit of the working parameters, while micro-batches are computed
  // As above, of a segment that the worker owns or holds a copy of: published, and not read yet; and
  // the worker compares 100 ms later than all others.
  kFlipOwned,
  kFlipCopy,
  kCorruptReplica,   // weights of all segments held as a replica, as if computed so
  kMultiplyWrongly,  // one product in 1,000 of each gradient is another one
  kIgnoreFence,      // a worker that was left out stays
  kHangComputing,    // a compute thread never returns from its pass
  kHangDataPlane,    // the data plane's thread never goes on
  kAcceptAnyTotal,   // totals are not weighed: their fifth lane says nothing
  kLeaveProcess,     // a worker's end leaves a process behind
  kAcceptStranger,   // coordinators let in a peer without a key of the job
};

struct Order {
  Kind kind = Kind::kNone;
  Version version = 0;  // of the step in which it is done, once
  std::string worker;   // by this worker alone; empty = by all
};

// "KIND", "KIND@VERSION" or "KIND@VERSION@WORKER", as in "flip-state@20@worker-1"; none if it is
// not understood.
std::optional<Order> parse_order(std::string_view text);

// Once, in its step: what STARLING_SABOTAGE orders. Any thread.
bool due(Kind kind, Version version, std::string_view worker);
// As due(), as often as it is asked.
bool ordered_at(Kind kind, Version version, std::string_view worker);
// At any time, for what has no step.
bool ordered(Kind kind, std::string_view worker = {});

}  // namespace starling::actors::sabotage
