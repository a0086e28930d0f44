#pragma once
// What travels over a bulk connection of the simulated world: the bytes that production sends, but
// for moves, which carry the toy model's state.

#include "core/base/ids.h"
#include "core/wire/frame.h"

namespace starling::sim {

struct BulkFrame {
  EpochId epoch;  // in which it was sent; for the oracle alone
  Frame frame;
};

}  // namespace starling::sim
