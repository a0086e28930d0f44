#pragma once
// What a worker has added up in a step: int32 sums, side list and proof lanes (docs/design.md,
// section 5). elastic::StepWork keeps its part of the ledger.
//
// Reducing only reads them (R2); they are cleared after the vote passed (R7).

#include <atomic>
#include <cstdint>
#include <functional>
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

// Threads: begin(), what it gives, done() and complete() may be used by several threads at once;
// expect(), damaged(), mirror() and sums() by one, while others add to other parts; everything else
// only while nothing is added. Borrows `layout` and `device`, which must outlive it.
class Accumulators {
 public:
  Accumulators(const Layout& layout, std::uint32_t micro_batches, Device& device = host_device());

  const Layout& layout() const { return layout_; }

  struct Added {
    bool finite = true;              // false: some block holds a NaN or an infinity
    std::uint32_t side_entries = 0;  // finite blocks that did not fit the grid
    // Of the integers and side entries, whatever the order of parts and the device: the weighted sum
    // of each use of each segment, hashed, and the hashes of the entries, added up.
    std::uint64_t contribution = 0;
  };

  // A micro-batch on its way into the sums, part by part. Threads: belongs to one thread.
  class Adding {
   public:
    // What use `use` of this part gives of the gradient of the micro-batch's mean loss, once each:
    // [elements of the part] in the device's memory, padding is zero. A block that holds a NaN or
    // an infinity adds nothing but to the lanes, so all have the same micro-batches. Reads the
    // gradient and the sums once.
    void add(PartId part, std::uint32_t use, const float* gradient);
    // From here on, gradients are those of the loss times 2^scale, and count times 2^-scale.
    void set_scale(std::int32_t scale) { scale_ = scale; }
    // Each use of each part was added.
    Added finish();

   private:
    friend class Accumulators;
    Adding(Accumulators& sums, Queue& queue, const std::int16_t* exponents, std::uint64_t seed,
           Version step, MicroBatch m, bool counts);

    Accumulators& sums_;
    Queue& queue_;
    const std::int16_t* const exponents_;
    const std::uint64_t seed_;
    const Version step_;
    const MicroBatch micro_batch_;
    const bool counts_;  // false: nothing is added
    std::int32_t scale_ = 0;
    bool begun_ = false;
    std::uint64_t contribution_ = 0;
    std::uint32_t uses_left_ = 0;
    std::vector<std::uint32_t> uses_;  // by part: a bit for each that was added
    std::vector<SideEntry> side_;
    bool finite_ = true;
  };

  // Micro-batch m of `step`, which counts as begun with the first add(), once (P2): all between two
  // clear() are of the same step, and each m comes at most once.
  //   queue      of the device; the calling thread's
  //   exponents  [layout.blocks()] in the device's memory, those of version `step`
  // The result does not depend on the order or threads of what is added, except for the order of
  // side().
  Adding begin(Queue& queue, const std::int16_t* exponents, std::uint64_t seed, Version step,
               MicroBatch m);
  // The same, but nothing is added, neither to sums nor to lanes nor to what is done: for
  // Added::contribution alone, of any micro-batch as often as is wanted.
  Adding begin_again(Queue& queue, const std::int16_t* exponents, std::uint64_t seed, Version step,
                     MicroBatch m);
  // All of it at once, of a layout whose parts have one use each: gradient [layout.elements()].
  Added add(Queue& queue, const float* gradient, const std::int16_t* exponents, std::uint64_t seed,
            Version step, MicroBatch m);

  // Who adds a part for the last time of so many micro-batches as are expected says so: `told` runs
  // on that thread, once or more for a part. Set before anything is added.
  void tell(std::function<void(PartId)> told) { told_ = std::move(told); }
  // So many of the step in all; tells of parts that have them already.
  void expect(std::uint32_t micro_batches);
  // Whether the part has just those that are expected: nothing is added to it any more.
  bool complete(PartId part) const;

  // Micro-batches that have been added completely, ascending.
  std::vector<MicroBatch> done() const;
  void clear();
  // Memory for the sums, before they are needed (Memory::prepare). Threads: any.
  void prepare(const std::stop_token& stop) const { sums_.prepare(0, sums_.size(), stop); }

  // The first of these segments, of complete parts, whose sums are not what was added: its fifth
  // lane does not hold.
  std::optional<SegmentId> damaged(std::span<const SegmentId> segments) const;
  bool intact(SegmentId segment) const { return !damaged({&segment, 1}); }

  // What a reduce reads, [layout.elements()]: the sums themselves or, if the host cannot read
  // those, pinned memory, which has them as mirror() left them.
  std::span<const std::int32_t> sums() const { return sums_.host() ? sums_.all() : mirror_.all(); }
  // Brings these segments to sums(). Needs no call, and costs nothing, where the host can read them.
  void mirror(SegmentRange segments);

  // In the device's memory.
  const std::int32_t* address(SegmentRange segments) const {
    return sums_.data() + layout_.first_element(segments.first);
  }

  std::span<const ProofLanes> lanes() const { return lanes_; }  // [layout.segments()]
  const std::vector<SideEntry>& side() const { return side_; }
  // Its entries of these segments, by block, micro-batch and use.
  std::vector<SideEntry> side_of(SegmentRange segments) const;

 private:
  friend struct StateTamper;  // of tests (tests/breakable/state_tamper.h)

  struct Stripe {  // consecutive segments of a part under one lock
    Stripe(const Layout& layout, SegmentRange range) : segments(range), list(layout, range) {}
    std::mutex mutex;
    const SegmentRange segments;
    const SegmentList list;
    // Pinned, where jobs write: AddJob::weighted, ::outside and ::broken.
    std::uint64_t* weighted = nullptr;
    std::uint32_t* outside = nullptr;
    std::uint32_t* broken = nullptr;
  };

  void cut_stripes(Device& device);
  void note_begun(Version step, MicroBatch m);
  void note_added(PartId part);
  void add_stripe(Stripe& stripe, Adding& adding, const Part& part, std::uint32_t use,
                  const float* gradient);

  const Layout& layout_;
  const std::unique_ptr<Queue> queue_;
  // Each guarded by the mutex of its segment's stripe.
  Array<std::int32_t> sums_;
  std::vector<ProofLanes> lanes_;
  std::vector<std::vector<std::unique_ptr<Stripe>>> stripes_;  // by part
  // Pinned, [layout.segments()]: of what is added, and of what damaged() looks at.
  Array<std::uint64_t> weighted_;
  mutable Array<std::uint64_t> weighed_;
  Array<std::uint32_t> outside_;  // pinned, of each stripe its blocks and two more
  Array<std::int32_t> mirror_;    // pinned; empty where the host can read the sums

  // Whichever of a part's last add and expect() comes second sees the other: one of them tells.
  static constexpr std::uint32_t kNoneExpected = ~std::uint32_t{0};
  std::function<void(PartId)> told_;
  std::atomic<std::uint32_t> expected_ = kNoneExpected;
  std::vector<std::atomic<std::uint32_t>> added_;  // by part: uses of micro-batches

  mutable std::mutex mutex_;  // guards all below
  enum class Progress : std::uint8_t { kNone, kBegun, kDone };
  std::vector<Progress> progress_;  // by micro-batch
  std::optional<Version> step_;     // of what has been added; none: nothing was
  std::vector<SideEntry> side_;
};

}  // namespace starling::kernels
