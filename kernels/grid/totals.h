#pragma once
// Sums over all members: what a holder needs to vote for a step (R3, R4) and to apply it (R6).
//
// The arrays are over the whole layout and written by the collectives; segments that this worker
// does not hold are never touched and cost no memory.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/proof.h"
#include "core/base/result.h"
#include "core/base/side_entry.h"
#include "core/job/layout.h"
#include "kernels/device/array.h"

namespace starling::kernels {

// Threads: one at a time; a worker's store writes them while totals arrive and applies them.
// Borrows `layout` and `device`, which must outlive it.
class Totals {
 public:
  Totals(const Layout& layout, std::uint32_t micro_batches, Device& device = host_device());

  const Layout& layout() const { return layout_; }
  std::uint32_t micro_batches() const { return micro_batches_; }

  // Where the collectives write, [layout.elements()]: the sums themselves or, if the host cannot
  // read those, pinned memory, from which take() brings them.
  std::span<std::int32_t> sums() { return arriving().all(); }
  std::span<const std::int32_t> sums() const { return arriving().all(); }
  std::span<ProofLanes> lanes() { return lanes_; }  // [layout.segments()]
  std::span<const ProofLanes> lanes() const { return lanes_; }
  // What was written to sums() of these segments is there from here on. Needs no call, and costs
  // nothing, where the host can read the sums.
  void take(std::span<const SegmentId> segments);
  // The same without the host: the own sums and these of other workers, or what was added up
  // elsewhere; all in the device's memory, [elements of the segments]. Until clear(), take() leaves
  // these segments as they are.
  void add(SegmentRange segments, const std::int32_t* own,
           std::span<const std::int32_t* const> received);
  void copy(SegmentRange segments, const std::int32_t* from);

  // As State::expect().
  void expect(const std::vector<bool>& segments);
  // Memory for the sums of a segment, before they are needed (Memory::prepare). Threads: any.
  void prepare(SegmentId segment, const std::stop_token& stop) const;

  // Takes an entry of any worker's side list. Error kCorrupt, and nothing is taken, if it cannot be
  // one of this job's: block, micro-batch or use out of range, not finite, padding not zero, or there
  // already.
  Result<> add_side(const SideEntry& entry);
  std::span<const SideEntry> side_of(std::uint32_t block) const;
  float largest_side(std::uint32_t block) const;  // magnitude; 0 without entries

  // The update's gradient before clipping, mean[kBlock]: fp32((total * 2^exponent + side list) / M),
  // rounded once. For one block that is looked at; State asks for whole segments.
  void mean(std::uint32_t block, std::int16_t exponent, std::span<float> mean) const;

  // For jobs: the sums, and the means of these segments' blocks that have side entries, with the
  // exponents [layout.blocks()] of the device; these until the next call.
  const std::int32_t* address() const { return sums_.data(); }
  std::int32_t* address(SegmentRange segments) {
    return sums_.data() + layout_.first_element(segments.first);
  }
  WideMeans wide_means(Queue& queue, const std::int16_t* exponents,
                       std::span<const SegmentId> segments) const;

  // The first of these segments whose total is not the sum of what was added: its fifth lane does
  // not hold. A segment whose lanes are zero has no total.
  std::optional<SegmentId> damaged(std::span<const SegmentId> segments) const;
  // The same, if these are what WeighJob has written for them.
  std::optional<SegmentId> wrong(std::span<const SegmentId> segments,
                                 std::span<const std::uint64_t> weighted) const;
  bool intact(SegmentId segment) const { return !damaged({&segment, 1}); }
  bool has(SegmentId segment) const { return lanes_[segment].micro_batches != 0; }

  // The step whose vote this worker has cast with these totals, until it is applied or dropped.
  std::optional<Version> pending() const { return pending_; }
  void set_pending(Version step) { pending_ = step; }

  // Forgets lanes, side entries and pending. The sums stay: an all-zero lane accepts nothing, so
  // they cannot be taken for a total before they are written anew.
  void clear();

 private:
  Array<std::int32_t>& arriving() { return sums_.host() ? sums_ : arriving_; }
  const Array<std::int32_t>& arriving() const { return sums_.host() ? sums_ : arriving_; }

  const Layout& layout_;
  Device& device_;
  const std::uint32_t micro_batches_;
  const std::unique_ptr<Queue> queue_;
  Array<std::int32_t> sums_;
  Array<std::int32_t> arriving_;  // pinned; empty where the host can read the sums
  std::vector<bool> added_here_;  // by segment: add() or copy() brought its sums
  std::vector<ProofLanes> lanes_;
  std::map<std::uint32_t, std::vector<SideEntry>> side_;  // by block
  std::optional<Version> pending_;

  struct Wide {  // pinned, what wide_means() hands over
    Array<std::uint32_t> blocks, ends;
    Array<float> entries, means, largest;
  };
  mutable Wide wide_;
  mutable Array<std::uint64_t> weighted_;  // pinned, [layout.segments()]
};

}  // namespace starling::kernels
