#pragma once
// Rechecks: micro-batches that are computed a second time (docs/design.md, section 8), which worker
// computes which, and where second contributions differ from the ledger's rows. No sum depends on them.
//
// Threads: none; values.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/base/ids.h"
#include "core/wire/messages.h"

namespace starling::elastic {

struct RecheckRule {
  std::uint32_t share = 0;  // one micro-batch in so many is computed again; 0: none is
  std::uint64_t first = 0;  // steps at a worker's begin, in each of which it rechecks one at least
  std::uint64_t seed = 0;
  std::uint64_t every = 0;  // one at least, too, in steps that are multiples of it; 0: of none
};

// The micro-batches that rank `self`, which has computed in so many steps before, computes again in
// step `version` with these shares: a pure function. In evenly spaced steps each worker with a share
// rechecks equally many micro-batches of one other worker, and no two recheck the same worker; a
// worker that alone has a share rechecks its own. The cost is one part in rule.share of a step's
// computing.
std::vector<MicroBatch> rechecks_of(const RecheckRule& rule, Version version,
                                    const std::vector<Rank>& shares, Rank self,
                                    std::uint64_t computed);

// The rechecks of the step in flight at one member.
class Rechecks {
 public:
  // The step begins in an epoch. Results of an earlier epoch are dropped; passes that were ordered
  // there and are not answered yet still read the step's parameters, and stay unanswered.
  void open(std::vector<MicroBatch> wanted);
  std::vector<MicroBatch> wanted() const;

  // How many passes are ordered and not over.
  std::uint32_t unanswered() const { return unanswered_; }
  // One pass is over. No contribution: the pass was dropped before it began.
  void answered(MicroBatch m, std::optional<std::uint64_t> contribution);

  // Orders a second pass for micro-batches that were computed again once and differ from their
  // rows. They count as ordered. Call it with the whole ledger and nothing unanswered.
  std::vector<MicroBatch> once_more(const std::vector<LedgerRow>& rows);
  // The micro-batches that were computed again twice, and differ from their rows.
  std::vector<Difference> differences(Version version, const std::vector<LedgerRow>& rows) const;

 private:
  struct Again {
    std::optional<std::uint64_t> first, second;
  };
  std::map<MicroBatch, Again> wanted_;
  std::uint32_t unanswered_ = 0;
};

}  // namespace starling::elastic
