#pragma once
// Sums over all members: what a holder needs to vote for a step (R3, R4) and to apply it (R6).
//
// The arrays are over the whole layout and written by the collectives; segments that this worker
// does not hold are never touched and cost no memory.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/base/proof.h"
#include "core/base/result.h"
#include "core/base/side_entry.h"
#include "core/job/layout.h"
#include "kernels/grid/lazy_array.h"

namespace starling::kernels {

// Threads: none; while totals arrive it belongs to the communication thread, then to whoever
// applies. Borrows `layout`, which must outlive it.
class Totals {
 public:
  Totals(const Layout& layout, MicroBatch micro_batches);

  const Layout& layout() const { return layout_; }
  MicroBatch micro_batches() const { return micro_batches_; }

  std::span<std::int32_t> sums() { return sums_.all(); }  // [layout.elements()]
  std::span<const std::int32_t> sums() const { return sums_.all(); }
  std::span<ProofLanes> lanes() { return lanes_; }  // [layout.segments()]
  std::span<const ProofLanes> lanes() const { return lanes_; }

  // Memory for the sums of a segment, before they are needed (LazyPages::prepare). Threads: any.
  void prepare(SegmentId segment, const std::stop_token& stop) const;

  // Takes an entry of any worker's side list. Error kCorrupt, and nothing is taken, if it cannot be
  // one of this job's: block or micro-batch out of range, not finite, padding not zero, or there
  // already.
  Result<> add_side(const SideEntry& entry);
  std::span<const SideEntry> side_of(std::uint32_t block) const;
  float largest_side(std::uint32_t block) const;  // magnitude; 0 without entries

  // The update's gradient before clipping, mean[kBlock]: fp32((total * 2^exponent + side list) / M),
  // rounded once.
  void mean(std::uint32_t block, std::int16_t exponent, std::span<float> mean) const;

  // Whether a total is the sum of what was added: its fifth lane holds. A segment whose lanes are
  // zero has no total.
  bool intact(SegmentId segment) const;
  bool has(SegmentId segment) const { return lanes_[segment].micro_batches != 0; }

  // The step whose vote this worker has cast with these totals, until it is applied or dropped.
  std::optional<Version> pending() const { return pending_; }
  void set_pending(Version step) { pending_ = step; }

  // Forgets lanes, side entries and pending. The sums stay: an all-zero lane accepts nothing, so
  // they cannot be taken for a total before they are written anew.
  void clear();

 private:
  const Layout& layout_;
  const MicroBatch micro_batches_;
  LazyArray<std::int32_t> sums_;
  std::vector<ProofLanes> lanes_;
  std::map<std::uint32_t, std::vector<SideEntry>> side_;  // by block
  std::optional<Version> pending_;
};

}  // namespace starling::kernels
