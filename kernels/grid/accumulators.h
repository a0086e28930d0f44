#pragma once
// Accumulators hold what a worker has added up in a step: int32 sums, side list and proof
// lanes (docs/design.md, section 5). elastic::StepWork keeps its part of the ledger.
//
// A reduce only reads them (R2); they are cleared after the vote passed (R7).

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/proof.h"
#include "core/base/side_entry.h"
#include "core/job/layout.h"
#include "kernels/device/array.h"
#include "kernels/grid/quantise.h"
#include "kernels/grid/segment_list.h"

namespace starling::kernels {

// Threads: several threads at once may use begin(), its result, done() and complete(); one
// thread expect(), damaged(), mirror() and sums(), while others add to other parts; the
// rest only while no thread adds. Borrows `layout` and `device`, which must outlive it.
class Accumulators {
  struct Stripe;

 public:
  Accumulators(const Layout& layout, std::uint32_t micro_batches, Device& device = host_device(),
               const NumbersSpec& numbers = {});

  const Layout& layout() const { return layout_; }

  struct Added {
    bool finite = true;              // false: some block holds a NaN or an infinity
    std::uint32_t side_entries = 0;  // finite blocks that did not fit the grid
    // Hash of the integers and side entries, whatever the order of parts and the device:
    // the sum of hashed weighted sums, by segment and use, and of the entries' hashes.
    std::uint64_t contribution = 0;
  };

  // Adding is a micro-batch on its way into the sums, part by part. Threads: belongs to one thread.
  class Adding {
   public:
    Adding(const Adding&) = delete;
    Adding& operator=(const Adding&) = delete;
    ~Adding() {
      if (asked_) queue_.wait();  // the sums are being written
    }

    // Adds what use `use` of this part gives to the gradient of the micro-batch's
    // mean loss, once each: [elements of the part] in the device's memory, padding
    // is zero. A block with a NaN or an infinity adds only to the lanes, so that
    // all have the same micro-batches. Reads the gradient and the sums once.
    void add(PartId part, std::uint32_t use, const float* gradient);
    // From here on, gradients are those of the loss times 2^scale, and count times 2^-scale.
    void set_scale(std::int32_t scale) { scale_ = scale; }
    // From here on add() may return when it has asked the queue: a gradient stays as it is until the
    // next add() or finish() has returned. The queue has work while the host counts, then.
    void ask_ahead() { ahead_ = true; }
    // Ends the micro-batch; each use of each part must have been added.
    Added finish();

   private:
    friend class Accumulators;
    // Work that the queue was asked for and whose results the host has not counted yet.
    struct Asked {
      std::unique_lock<Mutex> lock;  // of the stripe
      Stripe& stripe;
      PartId part;
      std::uint32_t use;
      const float* gradient;  // of the part
      bool last;              // of the part's stripes
    };
    void settle();
    Adding(Accumulators& sums, Queue& queue, const std::int16_t* exponents, std::uint64_t seed,
           Version step, MicroBatch m, bool counts);

    Accumulators& sums_;
    Queue& queue_;
    const std::int16_t* const exponents_;
    const std::uint64_t seed_;
    const Version step_;
    const MicroBatch micro_batch_;
    const bool counts_;  // false: sums stay as they are
    std::int32_t scale_ = 0;
    bool begun_ = false;
    std::uint64_t contribution_ = 0;
    std::uint32_t uses_left_ = 0;
    std::vector<std::uint32_t> uses_;  // by part: a bit for each added use
    std::vector<SideEntry> side_;
    bool finite_ = true;
    bool ahead_ = false;
    std::optional<Asked> asked_;
  };

  // Begins micro-batch m of `step`, which counts as begun with the first add(), once
  // (P2): all between two clear() are of the same step, and each m comes at most once.
  //   queue      of the device; the calling thread's
  //   exponents  [layout.blocks()] in the device's memory, those of version `step`
  // The result does not depend on the order or threads
  // of additions, except for the order of side().
  Adding begin(Queue& queue, const std::int16_t* exponents, std::uint64_t seed, Version step,
               MicroBatch m);
  // Begins the same, but adds nothing to sums, lanes or done(): for
  // Added::contribution alone, of any micro-batch as often as the caller wants.
  Adding begin_again(Queue& queue, const std::int16_t* exponents, std::uint64_t seed, Version step,
                     MicroBatch m);
  // Adds all of it at once, for a layout whose parts have one use: gradient [layout.elements()].
  Added add(Queue& queue, const float* gradient, const std::int16_t* exponents, std::uint64_t seed,
            Version step, MicroBatch m);

  // The thread that adds the last expected micro-batch to a part calls
  // told(part). It may call it more than once. Set before any addition.
  void tell(std::function<void(PartId)> told) { told_ = std::move(told); }
  // Sets how many of the step are expected in all; tells of parts that have them already.
  void expect(std::uint32_t micro_batches);
  // Returns whether the part has exactly the expected ones: no thread adds to it any more.
  bool complete(PartId part) const;

  // Returns the micro-batches that have been added completely, ascending.
  std::vector<MicroBatch> done() const;
  void clear();
  // Finds memory for the sums before they are needed (Memory::prepare). Threads: any.
  void prepare(const std::stop_token& stop) const { sums_.prepare(0, sums_.size(), stop); }

  // Returns the first of these segments, of complete parts, whose
  // sums are not what was added: its fifth lane does not hold.
  std::optional<SegmentId> damaged(std::span<const SegmentId> segments) const;
  bool intact(SegmentId segment) const { return !damaged({&segment, 1}); }

  // A reduce reads these, [layout.elements()]: the sums themselves or, if the
  // host cannot read those, pinned memory, which has them as mirror() left them.
  std::span<const std::int32_t> sums() const { return sums_.host() ? sums_.all() : mirror_.all(); }
  // Copies these segments to sums(). Not needed, and free, where the host can read them.
  void mirror(SegmentRange segments);

  // Returns an address in the device's memory.
  const std::int32_t* address(SegmentRange segments) const {
    return sums_.data() + layout_.first_element(segments.first);
  }

  std::span<const ProofLanes> lanes() const { return lanes_; }  // [layout.segments()]
  // Requires that no thread adds.
  const std::vector<SideEntry>& side() const STARLING_NO_THREAD_SAFETY_ANALYSIS { return side_; }
  // Returns the side entries of these segments, by block, micro-batch and use.
  std::vector<SideEntry> side_of(SegmentRange segments) const;

 private:
  friend struct StateTamper;  // of tests (tests/breakable/state_tamper.h)

  struct Stripe {  // consecutive segments of a part under one lock
    Stripe(const Layout& layout, SegmentRange range) : segments(range), list(layout, range) {}
    Mutex mutex;
    const SegmentRange segments;
    const SegmentList list;
    // These are pinned; jobs write AddJob::weighted, ::outside and ::broken there.
    std::uint64_t* weighted = nullptr;
    std::uint32_t* outside = nullptr;
    std::uint32_t* broken = nullptr;
  };

  void cut_stripes(Device& device);
  void note_begun(Version step, MicroBatch m);
  void note_added(PartId part);

  // Pinned memory for values on their way to the side list, of at least this size.
  Array<float> take_staging(std::size_t size);
  void give_staging(Array<float> staging);

  const Layout& layout_;
  const std::uint32_t micro_batches_;
  Device& device_;
  const NumbersSpec numbers_;
  const std::unique_ptr<Queue> queue_;
  // The mutex of a segment's stripe guards that segment's part of both.
  Array<std::int32_t> sums_;
  std::vector<ProofLanes> lanes_;
  std::vector<std::vector<std::unique_ptr<Stripe>>> stripes_;  // by part
  // These are pinned, [layout.segments()]: for additions, and for damaged().
  Array<std::uint64_t> weighted_;
  mutable Array<std::uint64_t> weighed_;
  Array<std::uint32_t> outside_;  // pinned, of each stripe its blocks and two more
  Array<std::int32_t> mirror_;    // pinned; empty where the host can read the sums

  // The later one of a part's last add and expect() sees the other, so that one of them tells.
  static constexpr std::uint32_t kNoneExpected = ~std::uint32_t{0};
  std::function<void(PartId)> told_;
  std::atomic<std::uint32_t> expected_ = kNoneExpected;
  std::vector<std::atomic<std::uint32_t>> added_;  // by part: uses of micro-batches

  mutable Mutex mutex_;
  enum class Progress : std::uint8_t { kNone, kBegun, kDone };
  std::vector<Progress> progress_ STARLING_GUARDED_BY(mutex_);  // by micro-batch
  std::optional<Version> step_ STARLING_GUARDED_BY(mutex_);  // of what was added; none: nothing was
  std::vector<SideEntry> side_ STARLING_GUARDED_BY(mutex_);
  // As many as threads took one at a time.
  std::vector<Array<float>> staging_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling::kernels
