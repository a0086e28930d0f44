#pragma once
// What a worker has added up in a step: int32 sums, side list and proof lanes (docs/design.md,
// section 5). Its part of the ledger is kept by the step engine.
//
// Reducing only reads them (R2); they are cleared after the vote passed (R7).

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/base/proof.h"
#include "core/base/side_entry.h"
#include "core/job/layout.h"
#include "kernels/device/array.h"
#include "kernels/grid/quantise.h"
#include "kernels/grid/segment_list.h"

namespace starling::kernels {

// Threads: add() and done() may be called by several threads at once; everything else only while no
// add() runs, one at a time. Borrows `layout` and `device`, which must outlive it.
class Accumulators {
 public:
  Accumulators(const Layout& layout, std::uint32_t micro_batches, Device& device = host_device());

  struct Added {
    bool finite = true;              // false: the gradient holds a NaN or an infinity
    std::uint32_t side_entries = 0;  // blocks that did not fit the grid
  };

  // Adds micro-batch m of `step`, once (P2): every add between two clear() is of the same step, and
  // each m comes at most once.
  //   queue      of the device; the calling thread's
  //   gradient   [layout.elements()] of the micro-batch's mean loss; padding is zero
  //   exponents  [layout.blocks()], those of version `step`
  // both in the device's memory. The result does not depend on the order or threads of the calls,
  // except for the order of side(). Of a gradient that is not finite nothing is added but the
  // lanes, so every block has the same micro-batches. Reads the gradient twice and the sums once.
  Added add(Queue& queue, const float* gradient, const std::int16_t* exponents, std::uint64_t seed,
            Version step, MicroBatch m);

  // Micro-batches that have been added completely, ascending.
  std::vector<MicroBatch> done() const;
  void clear();
  // Memory for the sums, before they are needed (Memory::prepare). Threads: any.
  void prepare(const std::stop_token& stop) const { sums_.prepare(0, sums_.size(), stop); }

  // The first of these segments whose sums are not what was added: its fifth lane does not hold.
  std::optional<SegmentId> damaged(std::span<const SegmentId> segments) const;
  bool intact(SegmentId segment) const { return !damaged({&segment, 1}); }

  // What a reduce reads, [layout.elements()]: the sums themselves or, if the host cannot read
  // those, pinned memory, which has them as mirror() left them.
  std::span<const std::int32_t> sums() const { return sums_.host() ? sums_.all() : mirror_.all(); }
  // Brings these segments to sums(). Needs no call, and costs nothing, where the host can read them.
  void mirror(SegmentRange segments);

  std::span<const ProofLanes> lanes() const { return lanes_; }  // [layout.segments()]
  const std::vector<SideEntry>& side() const { return side_; }
  // Its entries of these segments, by block and micro-batch.
  std::vector<SideEntry> side_of(SegmentRange segments) const;

 private:
  friend struct StateTamper;  // of tests (tests/breakable/state_tamper.h)

  struct Stripe {  // consecutive segments under one lock
    Stripe(const Layout& layout, SegmentRange range) : segments(range), list(layout, range) {}
    std::mutex mutex;
    const SegmentRange segments;
    const SegmentList list;
    // Pinned, where jobs write: AddJob::weighted and AddJob::outside.
    std::uint64_t* weighted = nullptr;
    std::uint32_t* outside = nullptr;
  };

  void begin(Version step, MicroBatch m);
  bool finite(Queue& queue, const float* gradient, MicroBatch m);
  void add_stripe(Stripe& stripe, Queue& queue, const float* gradient,
                  const std::int16_t* exponents, MicroBatch m, std::vector<SideEntry>& side);
  void count(SegmentRange segments, std::uint64_t hash);

  const Layout& layout_;
  const Grid grid_;
  const std::unique_ptr<Queue> queue_;
  // Each guarded by the mutex of its segment's stripe.
  Array<std::int32_t> sums_;
  std::vector<ProofLanes> lanes_;
  std::vector<std::unique_ptr<Stripe>> stripes_;
  mutable Array<std::uint64_t> weighted_;  // pinned, [layout.segments()]
  Array<std::uint32_t> outside_;           // pinned, of each stripe its blocks and one more
  Array<std::uint32_t> broken_;            // pinned, by micro-batch: FiniteJob::broken
  Array<std::int32_t> mirror_;             // pinned; empty where the host can read the sums

  mutable std::mutex mutex_;  // guards all below
  enum class Progress : std::uint8_t { kNone, kBegun, kDone };
  std::vector<Progress> progress_;  // by micro-batch
  std::optional<Version> step_;     // of what has been added; none: nothing was
  std::vector<SideEntry> side_;
};

}  // namespace starling::kernels
