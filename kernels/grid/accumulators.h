#pragma once
// What a worker has added up in a step: int32 sums, side list and proof lanes (docs/design.md,
// section 5). Its part of the ledger is kept by the step engine.
//
// Reducing only reads them (R2); they are cleared after the vote passed (R7).

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/base/proof.h"
#include "core/base/side_entry.h"
#include "core/job/layout.h"
#include "kernels/grid/lazy_array.h"
#include "kernels/grid/quantise.h"

namespace starling::kernels {

// Threads: add() and done() may be called by several threads at once; everything else only while no
// add() runs. Borrows `layout`, which must outlive it.
class Accumulators {
 public:
  Accumulators(const Layout& layout, MicroBatch micro_batches);

  struct Added {
    bool finite = true;              // false: the gradient holds a NaN or an infinity
    std::uint32_t side_entries = 0;  // blocks that did not fit the grid
  };

  // Adds micro-batch m of `step`, once (P2): every add between two clear() is of the same step, and
  // each m comes at most once.
  //   gradient   [layout.elements()] of the micro-batch's mean loss; padding is zero
  //   exponents  [layout.blocks()], those of version `step`
  // The result does not depend on the order or threads of the calls, except for the order of
  // side(). Of a gradient that is not finite nothing is added but the lanes, so every block has the
  // same micro-batches. Reads the gradient twice and the sums once.
  Added add(std::span<const float> gradient, std::span<const std::int16_t> exponents,
            std::uint64_t seed, Version step, MicroBatch m);

  // Micro-batches that have been added completely, ascending.
  std::vector<MicroBatch> done() const;
  void clear();
  // Memory for the sums, before they are needed (LazyPages::prepare). Threads: any.
  void prepare(const std::stop_token& stop) const { sums_.prepare(0, sums_.size(), stop); }

  // Whether a segment's sums are what was added: its fifth lane holds.
  bool intact(SegmentId segment) const;

  std::span<const std::int32_t> sums() const { return sums_.all(); }  // [layout.elements()]
  std::span<const ProofLanes> lanes() const { return lanes_; }        // [layout.segments()]
  const std::vector<SideEntry>& side() const { return side_; }
  // Its entries of these segments, by block and micro-batch.
  std::vector<SideEntry> side_of(SegmentRange segments) const;

 private:
  struct Stripe {  // consecutive segments under one lock
    std::mutex mutex;
    SegmentRange segments;
  };

  void begin(Version step, MicroBatch m);
  void add_segments(SegmentRange segments, std::span<const float> gradient,
                    std::span<const std::int16_t> exponents, MicroBatch m,
                    std::vector<SideEntry>& side);
  void count(SegmentRange segments, std::uint64_t hash);

  const Layout& layout_;
  const Grid grid_;
  // Each guarded by the mutex of its segment's stripe.
  LazyArray<std::int32_t> sums_;
  std::vector<ProofLanes> lanes_;
  std::vector<std::unique_ptr<Stripe>> stripes_;

  mutable std::mutex mutex_;  // guards all below
  enum class Progress : std::uint8_t { kNone, kBegun, kDone };
  std::vector<Progress> progress_;  // by micro-batch
  Version step_ = kNoVersion;       // of what has been added; kNoVersion = nothing
  std::vector<SideEntry> side_;
};

}  // namespace starling::kernels
