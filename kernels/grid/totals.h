#pragma once
// Totals are sums over all members: a holder needs them to vote (R3, R4) and to apply a step (R6).
//
// The arrays cover the whole layout, and the collectives write them; segments
// that this worker does not hold are never touched and cost no memory, but of pinned memory.

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

// Threads: one at a time; a worker's data plane writes them while totals arrive
// and applies them. Borrows `layout` and `device`, which must outlive it.
class Totals {
 public:
  Totals(const Layout& layout, std::uint32_t micro_batches, Device& device = host_device());

  const Layout& layout() const { return layout_; }
  std::uint32_t micro_batches() const { return micro_batches_; }

  // The collectives write here, [layout.elements()]: the sums themselves or, if
  // the host cannot read those, pinned memory, from which take() brings them.
  std::span<std::int32_t> sums() { return arriving().all(); }
  std::span<const std::int32_t> sums() const { return arriving().all(); }
  std::span<ProofLanes> lanes() { return lanes_; }  // [layout.segments()]
  std::span<const ProofLanes> lanes() const { return lanes_; }
  // Takes what was written to sums() of these segments. Not
  // needed, and free, where the host can read the sums.
  void take(std::span<const SegmentId> segments);
  // Adds without the host: the own sums and these of other workers, or sums
  // that were added up elsewhere; all in the device's memory, [elements of
  // the segments]. Until clear(), take() leaves these segments as they are.
  void add(SegmentRange segments, const std::int32_t* own,
           std::span<const std::int32_t* const> received);
  void copy(SegmentRange segments, const std::int32_t* from);

  // Takes memory of the device for a segment's sums, which start as zeros; take(), add() and copy() do so, too.
  // Throws std::bad_alloc where the device has none. drop() forgets the sums and gives it back.
  void hold(SegmentId segment);
  void drop(SegmentId segment);
  // Does what State::expect() does.
  void expect(const std::vector<bool>& segments);
  // Finds memory for a segment's sums before they are needed (Memory::prepare). Threads: any.
  void prepare(SegmentId segment, const std::stop_token& stop) const;

  // Takes an entry of any worker's side list. Error kCorrupt, and nothing
  // is taken, if it cannot be one of this job's: block, micro-batch or
  // use out of range, not finite, padding not zero, or there already.
  Result<> add_side(const SideEntry& entry);
  std::span<const SideEntry> side_of(std::uint32_t block) const;
  std::size_t side_entries() const { return side_entries_; }
  float largest_side(std::uint32_t block) const;  // magnitude; 0 without entries

  // Makes the update's gradient before clipping, mean[kBlock]: fp32((total * 2^exponent + side
  // list) / M), rounded once. For one block that a caller looks at; State asks for whole segments.
  void mean(std::uint32_t block, std::int16_t exponent, std::span<float> mean) const;

  // Jobs take these: the sums, and the means of these segments' blocks that have side entries,
  // with the exponents [layout.blocks()] of the device; the means until the next call.
  const std::int32_t* address() const { return sums_.data(); }
  std::int32_t* address(SegmentRange segments) {
    return sums_.data() + layout_.first_element(segments.first);
  }
  WideMeans wide_means(Queue& queue, const std::int16_t* exponents,
                       std::span<const SegmentId> segments) const;

  // Returns the first of these segments whose total is not the sum of what was added:
  // its fifth lane does not hold. A segment whose lanes are zero has no total.
  std::optional<SegmentId> damaged(std::span<const SegmentId> segments) const;
  // Returns the same, if `weighted` is what WeighJob has written for these segments.
  std::optional<SegmentId> wrong(std::span<const SegmentId> segments,
                                 std::span<const std::uint64_t> weighted) const;
  bool intact(SegmentId segment) const { return !damaged({&segment, 1}); }
  bool has(SegmentId segment) const { return lanes_[segment].micro_batches != 0; }

  // The step for which this worker has voted with these totals, until it is applied or dropped.
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
  std::vector<bool> held_;        // by segment
  std::vector<bool> added_here_;  // by segment: add() or copy() brought its sums
  std::vector<ProofLanes> lanes_;
  std::map<std::uint32_t, std::vector<SideEntry>> side_;  // by block
  std::size_t side_entries_ = 0;
  std::optional<Version> pending_;

  struct Wide {  // pinned; wide_means() hands it over
    Array<std::uint32_t> blocks, ends;
    Array<float> entries, means, largest;
  };
  mutable Wide wide_;
  mutable Array<std::uint64_t> weighted_;  // pinned, [layout.segments()]
};

}  // namespace starling::kernels
