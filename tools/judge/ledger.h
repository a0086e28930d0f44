#pragma once
// LedgerCount counts the ledgers of a run anew: each committed
// step has each of its micro-batches once (P2). Pure.

#include <cstdint>
#include <optional>
#include <string>

#include "tools/judge/story.h"

namespace starling::judge {

struct LedgerCount {
  std::uint64_t once = 0;            // pairs of committed step and micro-batch that are there
  std::uint64_t lost = 0;            // such pairs that are not
  std::uint64_t duplicated = 0;      // further rows of a pair that is there
  std::optional<std::string> wrong;  // the first fault, as text
};

// Counts the last ledger of a step, after a restart from a
// checkpoint. `from_start`: the story has every step from 0 on.
LedgerCount count_ledgers(const Story& story, bool from_start = true);

}  // namespace starling::judge
