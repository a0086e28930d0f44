#pragma once
// A queue can be asked to do these jobs with whole arrays of the grid (kernels/device/device.h).
// They are plain addresses and numbers, so that a compiler for another processor reads them too.
//
// Addresses are of the queue's device or pinned memory. Arrays marked "host" are
// read before the call returns. Arrays are flat over the layout (core/job/layout.h),
// [elements] or [blocks], and those of elements begin at a multiple of 16 bytes.

#include <cstddef>
#include <cstdint>

#include "core/base/grid_dice.h"
#include "kernels/device/element.h"

namespace starling::kernels {

// SegmentBlocks says which blocks a segment has.
struct SegmentBlocks {
  std::uint32_t id, first, count;
};
// Segments lists the segments that a job works on, in the host's memory. An
// array marked [each] has one entry for each of them, in the order of this list.
struct Segments {
  const SegmentBlocks* list;
  std::uint32_t count;
};

// Adds a micro-batch's gradient to the sums, block by block; leaves out
// a block that does not fit the grid, or holds a NaN or an infinity.
struct AddJob {
  const float* gradient;  // of the blocks from first_block on
  std::int32_t scale;     // each value counts times 2^-scale, rounded once: 0 to 126
  std::uint32_t first_block;
  const std::int16_t* exponents;  // [blocks]
  std::int32_t* sums;             // [elements], added to; null: only the rest is written
  std::int32_t limit;             // Grid::limit()
  bool by_dice;                   // q is rounded by `dice`, and the limit at most 2^14
  GridDice dice;
  Segments segments;
  std::uint64_t* weighted;  // [each], written: weighted sum of what was added
  std::uint32_t* outside;   // [1 + blocks of all], written: how many finite ones did not fit, and
                            // which, in any order
  std::uint32_t* broken;    // [1], written: how many were not finite
};

// Copies blocks of a gradient to one place, one after another.
struct GatherJob {
  const float* gradient;  // of the blocks from first_block on
  std::uint32_t first_block;
  const std::uint32_t* blocks;  // [count], in any order
  std::uint32_t count;
  float* values;  // [count][kBlock], written
};

// Makes weighted sums of segments of sums (core/base/proof.h).
struct WeighJob {
  const std::int32_t* sums;  // [elements]
  Segments segments;
  std::uint64_t* weighted;  // [each], written
};

// Adds sums of two workers, by element. Requires that they fit (kernels/grid/quantise.h).
struct SumJob {
  std::int32_t* sums;      // [elements], written; may be one of the others
  const std::int32_t* a;   // [elements]
  const std::int32_t* b;   // [elements]
  std::uint64_t elements;  // whole blocks
};

// WideJob makes these: the mean gradient of blocks with side entries.
struct WideMeans {
  const std::uint32_t* blocks;  // [count], ascending
  const float* means;           // [count][kBlock]
  const float* largest;         // [count], largest magnitude among the entries
  std::uint32_t count;
};

// Makes means of blocks with side entries: exact sum of total and entries, rounded once.
struct WideJob {
  const std::int32_t* totals;     // [elements]
  const std::int16_t* exponents;  // [blocks]
  const std::uint32_t* blocks;    // [count]
  const std::uint32_t* ends;      // [count]: entries of block i end here and begin where i-1's end
  const float* entries;           // [entries][kBlock]
  std::uint32_t count;
  std::uint32_t micro_batches;
  float* means;    // [count][kBlock], written
  float* largest;  // [count], written
};

// Adds squares of the mean gradient's real elements, exactly: significands' squares (integers
// below 2^48) by biased exponent. Weighs the totals as WeighJob does, in the same reading.
struct SquaresJob {
  const std::int32_t* totals;
  const std::int16_t* exponents;
  const std::uint16_t* used;  // [blocks], elements that count
  WideMeans wide;
  std::uint32_t micro_batches;
  Segments segments;
  std::uint64_t* bins;      // [256][2], low word first, added to
  std::uint64_t* weighted;  // [each], written
};

struct OwnOptimizer;  // kernels/optim/own.h

// These numbers of an update differ from group to group of tensors (core/job/groups.h).
struct GroupNumbers {
  float rate;   // AdamW, Adam: with the correction of the first moment; SGD
  float decay;  // AdamW, Adam: the part of a weight that stays; SGD: of a weight, to its gradient
  double own_rate, own_decay;  // of an application's optimizer
  bool statistics;             // the mean is subtracted as it is, whatever the optimizer
};
inline constexpr std::uint32_t kUpdateGroupsMax = 64;

// One element's update needs these numbers, rounded to float (kernels/optim/optimizer.h).
struct UpdateNumbers {
  float clip;
  float b1, c1, b2, c2, eps, root;  // AdamW, Adam
  float mu, own, ahead;             // SGD
  bool sgd;
  const OwnOptimizer* mine;  // an application's, on the host; null: one of the above
  std::uint64_t t;
  GroupNumbers groups[kUpdateGroupsMax];
};

// Makes a step of held segments (R6): means to weights, moments and exponents.
struct ApplyJob {
  const std::int32_t* totals;
  const std::uint16_t* used;   // [blocks]
  const std::uint8_t* groups;  // [blocks], which of numbers.groups its tensor has
  WideMeans wide;
  std::int16_t* exponents;
  float *weights, *first, *second;  // second: null if the optimizer has one moment
  UpdateNumbers numbers;
  std::uint32_t micro_batches;
  std::int32_t limit_bits, headroom_bits;  // of the Grid
  std::uint64_t step;
  bool skipped;  // exponents alone change
  Segments segments;
  std::uint64_t* checksums;  // [each], written as ChecksumJob does with seed step + 1
};

// Copies weights and exponents of held segments to the working ones.
struct PublishJob {
  const float* weights;
  const std::int16_t* held_exponents;
  float* parameters;
  Precision precision;  // of the weights on their way
  std::int16_t* exponents;
  Segments segments;
  std::uint64_t* checksums;  // [each], written as ChecksumJob does with seed 0
};

// Takes multiples of floats: to = factor * from, or to += factor * from. Requires a power of two as the factor, so that the
// product is rounded where it is too small for a normal float alone.
struct MultipleJob {
  const float* from;  // [elements]
  float factor;
  bool adds;               // false: what is in `to` is not read
  float* to;               // [elements], written
  std::uint64_t elements;  // whole blocks
};

// Takes the differences of two arrays, and zero where elements have the same bits, infinities among them.
struct DifferenceJob {
  const float *before, *after;  // [elements]
  float* difference;            // [elements], written
  std::uint64_t elements;       // whole blocks
};

// Adds squares of a gradient's real elements, exactly, as SquaresJob does those of means.
struct NormJob {
  const float* gradient;         // [elements]
  const std::uint16_t* used;     // [blocks], real elements
  const std::uint16_t* counted;  // [blocks], those of them whose squares are added: all or none
  std::uint32_t blocks;
  std::uint64_t* bins;  // [256][2], low word first, added to
  std::uint32_t*
      broken;  // [1], added to: blocks with a NaN or an infinity, whose squares are left out
};

// Makes a local step of weights from a gradient. Real elements alone change.
struct LocalStepJob {
  const float* gradient;            // [elements]
  const std::uint16_t* used;        // [blocks]
  const std::uint8_t* groups;       // [blocks], which of numbers.groups its tensor has
  float *weights, *first, *second;  // second: null if the optimizer has one moment
  UpdateNumbers numbers;
  float*
      parameters;  // the weights as passes read them, written; may be `weights`, if they are not rounded
  Precision precision;
  std::uint32_t blocks;
};

// Hashes exponents with hash64, then each array, seeded with the hash before it.
struct ChecksumJob {
  const std::int16_t* exponents;
  const float* arrays[3];     // of the blocks from first_block on; null: there are fewer
  std::uint32_t first_block;  // not of the exponents
  Segments segments;
  const std::uint64_t* seeds;  // [each], host
  std::uint64_t* checksums;    // [each], written
};

// Makes hash128 of id, real elements of the arrays and, if not null,
// exponents: the segment_digest() of core/job/segment_values.h.
struct DigestJob {
  const std::int16_t* exponents;
  const float* arrays[3];  // null: there are fewer
  const std::uint16_t* used;
  Segments segments;
  std::uint64_t* digests;  // [each][2], written, low word first
};

}  // namespace starling::kernels
