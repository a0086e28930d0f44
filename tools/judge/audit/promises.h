#pragma once
// An audit says whether a run kept the promises P1, P2 and P3 (docs/design.md,
// section 2), by its events. Pure. It believes no fact that the file shows twice:
// it computes again, from seed, sizes and ledger, which worker used which sample.

#include <cstdint>
#include <string>
#include <vector>

#include "tools/judge/audit/history.h"
#include "tools/judge/verdict.h"

namespace starling::audit {

// audit() returns P1, P2, P3 in this order.
//   P1  what one run can show: steps 0, 1, .. (or from its checkpoint on) without a gap, one record
//       each, a digest wherever one is due, one end, which may be one in order before the job is
//       done. A run that says of a worker that its work is in doubt does not show it, and one in
//       which a wrong gradient was added refutes it. Whether the bits are those of an undisturbed
//       run is shown by that run's events (difference.h) alone
//   P2  every committed step has one ledger with all M micro-batches once, each by a worker that
//       was a member of the epoch in which it was voted for; and every sample of a complete pass
//       is used exactly once
//   P3  versions rise from epoch to epoch, no forced plan begins below what was committed before
//       it, and no checkpoint was read
//
// A missing fact refutes a promise only where the file is known to be whole (why_incomplete).
// This costs about a microsecond for each sample that was used.
std::vector<judge::Verdict> audit(const History& history);

// A Use is a place where a sample stood: one for each pass that reached it.
struct Use {
  std::uint64_t pass = 0;
  std::uint64_t step = 0;
  MicroBatch micro_batch = 0;
  std::uint32_t place = 0;             // in the micro-batch
  std::vector<std::uint64_t> workers;  // by the ledgers: one, if P2 holds
};
// `sample` < start.samples.
std::vector<Use> uses_of(const History& history, std::uint64_t sample);

// Returns "held", "refuted" or "not shown".
const char* proof_text(judge::Finding finding);

}  // namespace starling::audit
