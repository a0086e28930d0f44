#pragma once
// State is what training changes: the working parameters and exponents that every
// worker has, and the master weights, moments and exponents of the segments that
// this worker holds (docs/design.md, sections 1 and 5, steps 4 and 5).
//
// The arithmetic of apply() is the same on owner and replica and for every cut into segments, so
// all copies of a segment have the same bits. Bytes for frames and digests are in state_bytes.cpp.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/exact_sum.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/base/step_record.h"
#include "core/job/groups.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "core/job/segment_values.h"
#include "kernels/device/array.h"
#include "kernels/grid/block_groups.h"
#include "kernels/grid/quantise.h"
#include "kernels/grid/totals.h"

namespace starling::kernels {

// Every worker computes from Working, in its device's memory.
struct Working {
  const float* parameters = nullptr;        // [layout.elements()]
  const std::int16_t* exponents = nullptr;  // [layout.blocks()]
  // A gradient of halves is that of the loss times 2^scale (core/base/loss_scale.h).
  std::int32_t scale = 0;
  // Where other processes map the parameters from; nothing: they cannot.
  std::optional<SharedPlace> place{};
};

// Threads: one at a time; but working() from any, and others may read
// what it names while no call writes it. A call's results are there when
// it returns. Borrows `layout` and `device`, which must outlive it.
class State {
 public:
  State(const Layout& layout, const Job& job, Device& device = host_device());

  // ---- Working parameters of every worker -----------------------------------------------------
  Working working() const {
    return {parameters_.data(), exponents_.data(), 0, parameters_.place()};
  }
  // These are the same for the host, only where it can read the device's memory.
  std::span<const float> parameters() const { return parameters_.all(); }
  std::span<const std::int16_t> exponents() const { return exponents_.all(); }
  // These copy, whatever the device.
  std::vector<float> copy_parameters() const;
  std::vector<std::int16_t> copy_exponents() const;

  // ---- Held segments ----------------------------------------------------------------------------
  // A held segment starts as zeros without a label; initialise() or set_state() give it one.
  // Holding a segment again changes nothing. drop() gives its memory back. Both take and give memory
  // of a device, where the host's is taken when it is written; hold() throws std::bad_alloc
  // where the device has none, and then holds nothing of it.
  void hold(SegmentId segment);
  void drop(SegmentId segment);
  // These segments are going to be held, and no others: call it where
  // the memory of the gaps between them is worth more than large pages.
  void expect(const std::vector<bool>& segments);
  // Finds memory before it is written (Memory::prepare): for the working parameters,
  // and for these segments as if they were held. Threads: any, whatever others do.
  void prepare_parameters(const std::stop_token& stop) const;
  void prepare(SegmentId segment, const std::stop_token& stop) const;
  bool holds(SegmentId segment) const { return held_[segment] != 0; }
  Version label(SegmentId segment) const { return labels_[segment]; }

  // Values of one held segment: the state itself or, where the host cannot read
  // it, copies in `scratch`, which is overwritten. set_values() checks everything
  // before it writes anything (kCorrupt) and gives a held segment that label.
  SegmentValues values(SegmentId segment, Bytes& scratch) const;
  Result<> set_values(const SegmentValues& values, Version label);

  // Starts a job, part by part: makes working parameters (rounded as publish() does) and
  // exponents of version 0, and weights and exponents with zero moments in the part's held
  // segments. `parameters` are those of the part, padding zero; `exponents` those of all blocks.
  void initialise_part(PartId part, std::span<const float> parameters,
                       std::span<const std::int16_t> exponents);
  // Starts one of the part's held segments that has no label yet, and nothing
  // else: micro-batches may be computed from the working parameters meanwhile.
  void initialise_segment(SegmentId segment, std::span<const float> parameters,
                          std::span<const std::int16_t> exponents);
  // Starts all parts, from parameters of all.
  void initialise(std::span<const float> parameters, std::span<const std::int16_t> exponents);

  // ---- Integrity (docs/design.md, section 8) ----------------------------------------------------
  // Returns the first of these held segments with labels whose bits have
  // changed since the last write: all code that writes one notes a checksum.
  // 64 bits: a flipped bit is always found, worse damage all but surely.
  std::optional<SegmentId> damaged(std::span<const SegmentId> segments) const;
  bool intact(SegmentId segment) const { return !damaged({&segment, 1}); }
  // Returns the first of these held segments whose exponents, from which the norm is computed,
  // differ from the working ones, which are a separate copy. Both are of the same version.
  std::optional<SegmentId> exponents_differ(std::span<const SegmentId> segments) const;
  // Does what damaged() does, for the working parameters and exponents.
  std::optional<SegmentId> parameters_damaged(std::span<const SegmentId> segments) const;

  // ---- A step -----------------------------------------------------------------------------------
  // Exact sum of squares of the mean gradient over the real elements of
  // these held segments; the owners' sums of all workers add up to the
  // norm. `damaged`: as Totals::damaged, which reads the same memory.
  struct Norm {
    ExactSum squares;
    std::optional<SegmentId> damaged;
  };
  Norm partial_norm(const Totals& totals, std::span<const SegmentId> segments) const;

  // R6: takes held segments from label v = record.version to v + 1. Requires that
  // the totals are pending for v. A skipped step changes exponents and label alone.
  // `peak_rate`: in place of [optimizer].peak_rate; 0: that one.
  void apply(const Totals& totals, const StepRecord& record, std::span<const SegmentId> segments,
             double peak_rate = 0);

  // Copies weights and exponents of held segments (those owned) to the
  // working ones; weights are rounded if the job's precision has halves.
  void publish(std::span<const SegmentId> segments);
  // Returns checksums of working parameters and exponents as written: equal for equal bits.
  std::vector<std::uint64_t> published(SegmentRange segments) const;

  // Returns the 128-bit sum, over these held segments, of hashes of (id, weights, moments,
  // exponents), real elements only; owners' sums add up to the version's digest in any placement.
  Digest digest_part(std::span<const SegmentId> segments) const;
  // Returns the same of the working parameters alone, of any segments: real elements only.
  Digest parameters_part(std::span<const SegmentId> segments) const;

  // ---- Bytes ------------------------------------------------------------------------------------
  // Working parameters and exponents for a gather frame, full state for a move frame, each with the
  // checksums noted here. Decoders check all but those before they write: error kCorrupt leaves the
  // state as it was. Data without their checksums, because they changed in memory or on their way,
  // are kCorrupt as well; they were written, but count as nothing: working parameters of no
  // version, held segments without a label. Decoders return the segments that the bytes were about.
  Bytes params_bytes(std::span<const SegmentRange> ranges) const;
  // Writes only the segments that are `wanted`.
  Result<std::vector<SegmentRange>> set_params(
      ByteView bytes,
      const std::function<bool(SegmentId)>& wanted = [](SegmentId) { return true; });
  // Gives the address of working parameters for copies from device to device, [elements of
  // the segments]; proofs go beside them through the host: published() and the exponents.
  const float* parameters(SegmentRange segments) const {
    return parameters_.data() + layout_.first_element(segments.first);
  }
  Bytes proofs(SegmentRange segments) const;
  // Takes both from elsewhere, `staged` in the device's memory: compares all before it writes, and
  // only segments that are `wanted`. Errors: kCorrupt, they differ from what was published there.
  Result<> take_parameters(SegmentRange segments, const float* staged, ByteView proofs,
                           const std::function<bool(SegmentId)>& wanted);
  Bytes state_bytes(SegmentRange range) const;  // all held, all of one label
  // Takes only segments that are held; their label
  // becomes that in the bytes, which must be `label`.
  Result<SegmentRange> set_state(ByteView bytes, Version label);

 private:
  friend struct StateTamper;  // of tests (tests/breakable/state_tamper.h)

  struct Span {  // where a segment or range lies
    std::uint32_t first_block = 0, blocks = 0;
    std::uint64_t first() const { return std::uint64_t{first_block} * kBlock; }
    std::uint64_t count() const { return std::uint64_t{blocks} * kBlock; }
  };
  Span span_of(SegmentId segment) const { return span_of({segment, 1}); }
  Span span_of(SegmentRange range) const;
  std::vector<Array<float>*> held_arrays();  // weights and moments
  // Return checksums of the held state or of the working parameters, in results_.
  std::span<const std::uint64_t> checksums(std::span<const SegmentId> segments) const;
  std::span<const std::uint64_t> parameter_checksums(std::span<const SegmentId> segments) const;
  // Notes the checksums of the present bits.
  void seal(std::span<const SegmentId> segments);
  void seal_parameters(std::span<const SegmentId> segments);
  std::uint64_t* results(std::span<const SegmentId> segments) const;
  Digest sum_of_digests(std::size_t count) const;
  void apply(const Totals& totals, const StepRecord& record, std::span<const SegmentId> segments,
             const Grid& grid, double rate);
  template <class T>
  void put(ByteWriter& writer, const Array<T>& array, std::size_t first, std::size_t n) const;
  // Working parameters in frames have What::kHalves where the job rounds them.
  What framed() const { return halves() ? What::kHalves : What::kParameters; }
  void put_parameters(ByteWriter& writer, Span span) const;
  void take_framed(Span span, ByteView framed);
  bool halves() const { return job_.precision != Precision::kFp32; }
  Result<SegmentRange> read_range(ByteReader& reader) const;
  Result<> check_exponents(ByteView bytes) const;
  // `blocks`: whole ones of this span, with elements as `what` has them.
  Result<> check_padding(Span span, ByteView blocks, What what) const;

  const Layout& layout_;
  const Job job_;
  const Grid grid_;
  const unsigned moments_;  // arrays of moments that the optimizer has

  const std::unique_ptr<Queue> queue_;

  Array<float> parameters_;
  Array<std::int16_t> exponents_;
  Array<std::int16_t> arriving_exponents_;  // of take_parameters()

  Array<float> weights_, first_, second_;
  Array<std::int16_t> held_exponents_;  // a separate copy, since it may be a version ahead

  const BlockGroups blocks_;
  // Jobs write to this pinned memory: two words for each segment,
  // or the bins of a norm and the weighted sums of some segments.
  mutable Array<std::uint64_t> results_;

  std::vector<std::uint8_t> held_;  // by segment
  std::vector<Version> labels_;     // kNoVersion: held without content, or not held
  std::vector<std::uint64_t> checksums_, parameter_checksums_;  // by segment
};

}  // namespace starling::kernels
