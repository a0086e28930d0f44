#pragma once
// The ledgers of a run counted anew: each committed step has each of its micro-batches once (P2).
// Pure.

#include <cstdint>
#include <optional>
#include <string>

#include "tools/chaos/story.h"

namespace starling::chaos {

struct LedgerCount {
  std::uint64_t once = 0;            // pairs of committed step and micro-batch that are there
  std::uint64_t lost = 0;            // that are not
  std::uint64_t duplicated = 0;      // further rows of a pair that is there
  std::optional<std::string> wrong;  // the first thing that is not as it must be
};

// After a restart from a checkpoint the last ledger of a step counts. `from_start`: the story has
// every step from 0 on.
LedgerCount count_ledgers(const Story& story, bool from_start = true);

}  // namespace starling::chaos
