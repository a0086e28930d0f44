#pragma once
// The table has every kind of fault, in the order in which people see them.

#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/chaos/faults/kind.h"

// Each kind has a line here, and faults/WORD.cpp defines it.
#define STARLING_FAULT_KINDS(KIND) \
  KIND(kKill)                      \
  KIND(kStop)                      \
  KIND(kJoin)                      \
  KIND(kLeave)                     \
  KIND(kCoordinatorKill)           \
  KIND(kGuardKill)                 \
  KIND(kSlow)                      \
  KIND(kPartition)                 \
  KIND(kCorrupt)                   \
  KIND(kSlowLink)                  \
  KIND(kDiskFull)                  \
  KIND(kCheckpointFull)            \
  KIND(kApart)

namespace starling::chaos {

namespace faults {
#define STARLING_DECLARE_KIND(name) extern constinit const FaultKind name;
STARLING_FAULT_KINDS(STARLING_DECLARE_KIND)
#undef STARLING_DECLARE_KIND
}  // namespace faults

std::span<const FaultKind* const> fault_kinds();
std::string known_kinds();  // "kill, stop, ..."
// Lists the kinds for which this is true: kinds_that(&FaultKind::usual) is "kill,stop,...".
std::string kinds_that(bool FaultKind::*what);
// Reads "kill,stop"; each at most once. Errors: kBadInput  the word, and what is known.
Result<std::vector<const FaultKind*>> parse_kinds(const std::string& words);

}  // namespace starling::chaos
