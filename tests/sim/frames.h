#pragma once
// What travels over a bulk connection of the simulated world: a real frame, and beside it the parts
// whose encoding belongs to the actors and is not simulated.

#include <memory>
#include <vector>

#include "core/wire/frame.h"
#include "core/wire/messages.h"
#include "tests/sim/numbers.h"

namespace starling::sim {

struct BulkExtra {
  Vote vote;
  std::vector<LedgerRow> rows;
  std::vector<SegmentState> states;  // a move's
};

struct BulkFrame {
  EpochId epoch;  // in which it was sent; for the oracle alone
  Frame frame;
  std::shared_ptr<const BulkExtra> extra;  // of votes, ledgers and moves
};

}  // namespace starling::sim
