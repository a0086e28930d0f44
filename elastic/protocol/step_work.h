#pragma once
// StepWork is what is to be computed of the step in flight, and what of it is done: this worker's
// share, what is in its accumulators, and the ledger of all M micro-batches (docs/design.md,
// section 5). It owns them; the worker asks it what is left, and enters what others have done.
//
// The work done here outlives an epoch: the same step is opened again in the next one (R8), until
// its vote has passed (R7).
//
// Threads: none; a value.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/wire/messages.h"

namespace starling::elastic {

class StepWork {
 public:
  // evaluation_width: numbers of each held-out batch in a row (LedgerRow::held_out).
  explicit StepWork(std::uint32_t micro_batches, std::size_t evaluation_width = 1)
      : ledger_(micro_batches), evaluation_width_(evaluation_width) {}

  // Opens the step, in an epoch or again in the one that follows it: of the ledger only what was
  // done here is known.
  void open();
  // Sets this worker's share, by the rank of each micro-batch.
  // Returns what of it is not done yet.
  std::vector<MicroBatch> deal(const std::vector<Rank>& shares, Rank self);
  // Whether these shares leave to this rank all that is done here.
  bool dealt_to(const std::vector<Rank>& shares, Rank self) const;

  // A micro-batch is in the accumulators. False: it is not of the share, and does not count.
  bool add(const LedgerRow& row);
  // Enters the row in the ledger too, as the step is open in the epoch.
  void enter(const LedgerRow& row) { ledger_.at(row.micro_batch) = row; }
  // Takes rows of another member. False: a row is there already, or does not exist.
  bool arrived(const std::vector<LedgerRow>& rows);

  bool has_share() const { return !share_.empty(); }
  std::uint32_t share_size() const { return static_cast<std::uint32_t>(share_.size()); }
  bool share_done() const;
  std::uint32_t left() const;                 // of the share
  std::vector<LedgerRow> share_rows() const;  // of the share, all of which is done
  std::vector<MicroBatch> share() const { return {share_.begin(), share_.end()}; }
  std::vector<MicroBatch> done() const;

  bool complete() const;                // the ledger has all M rows
  std::vector<LedgerRow> rows() const;  // that it has, by micro-batch
  // What the ledger says of its step: loss, tokens, whether it is skipped, and its hash.
  StepRecord record(Version version) const;

  // The vote has passed (R7): the accumulators are empty, and no worker has a share. The ledger
  // stays until the next step is opened.
  void clear();
  // Clears the accumulators alone: only where R7 is broken on purpose.
  void clear_done();

  void check_invariants() const;
  bool empty() const { return share_.empty() && done_.empty(); }

 private:
  std::set<MicroBatch> share_;
  std::map<MicroBatch, LedgerRow> done_;  // rows of what is in the accumulators
  std::vector<std::optional<LedgerRow>> ledger_;
  std::size_t evaluation_width_;
};

}  // namespace starling::elastic
