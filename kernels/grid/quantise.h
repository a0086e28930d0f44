#pragma once
// The integer grid turns a micro-batch's gradient into integers whose
// sum does not depend on order (docs/design.md, section 5, "The grid").
//
// Block b has an exponent x; a gradient g counts as q = round_half_even(g * 2^-x). If every |q| of
// the block is below 2^(30 - ceil(log2 uM)), with u uses of its part, all of them fit int32 with a
// bit to spare; if not, the block of this use and micro-batch goes to the side list. A job may want
// fewer bits, and q rounded up or down by dice (core/base/grid_dice.h) instead. Everything here
// is a pure function; the plain and the AVX2 versions give the same bits, so which one runs is no
// part of the fingerprint.

#include <cstdint>
#include <span>

#include "core/base/grid_dice.h"
#include "core/base/ids.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "kernels/device/element.h"
#include "kernels/grid/exponent.h"

namespace starling::kernels {

inline constexpr std::uint32_t kMicroBatchesMax = 1u << 24;

// A Grid is what the grid takes from the job.
struct Grid {
  // Requires 1 <= micro_batches <= kMicroBatchesMax. bits: NumbersSpec::grid_bits.
  explicit Grid(std::uint32_t micro_batches, std::uint32_t bits = 0);
  explicit Grid(const Job& job) : Grid(job.micro_batches, job.numbers.grid_bits) {}
  // Returns the grid for blocks to which each micro-batch adds so many times (Part::uses).
  Grid with_uses(std::uint32_t uses) const;

  std::uint32_t micro_batches;
  std::uint32_t bits;  // 0: as many as sums leave
  int limit_bits;      // |q| < 2^limit_bits
  // A micro-batch may be 2^headroom_bits times the mean; measured in tools/bench/grid_bench.cpp.
  int headroom_bits = 1;
  std::int32_t limit() const { return std::int32_t{1} << limit_bits; }
};

// Returns the smallest exponent, clamped, with which `largest` *
// 2^headroom is below the limit. Requires 0 < largest < infinity.
std::int16_t fit_exponent(const Grid& grid, float largest);

// Returns the exponent for step + 1 from that of `step` and the block's total: up at once to
// where the largest magnitude of the mean gradient leaves the headroom and the largest one on
// the side list (0: none) would just have fitted; down one bit in kDecaySteps steps;
// unchanged if both are zero. The second condition lets the headroom grow where micro-batches
// differ much more than their mean tells. Not finite counts as the largest float.
std::int16_t next_exponent(const Grid& grid, std::int16_t exponent, float largest_mean,
                           float largest_side, Version step);

// Makes exponents from one gradient, at the start. A block of zeros (or with a NaN
// or infinity) takes the largest of its tensor; a tensor of zeros kExponentMin, so
// that its first gradient goes to the side list, exactly, and sets the exponent.
//   gradient [layout.elements()], exponents [layout.blocks()]
void initial_exponents(const Grid& grid, const Layout& layout, std::span<const float> gradient,
                       std::span<std::int16_t> exponents);

// Requires an exponent from kExponentMin to kExponentMax.
GridScale grid_scale(std::int16_t exponent);

// BlockKernels are the inner loops. All pointers are to whole blocks
// of kBlock elements; `first`: the number of the first element.
struct BlockKernels {
  // Adds q of each block in which every |q| < limit to sums, and the weighted sum of what was added
  // (core/base/proof.h) to `weighted`. Leaves out a block that does not fit, as NaN and infinity do
  // not, and notes it in `outside` [blocks], counted from 0. Returns how many these are.
  std::uint32_t (*add)(const float* gradient, const std::int16_t* exponents, std::int32_t limit,
                       std::uint32_t first, std::uint32_t blocks, std::int32_t* sums,
                       std::uint64_t* weighted, std::uint32_t* outside);
  // Adds likewise, q rounded up or down by dice; the first block has the number first_block. Requires a limit of at
  // most 2^14.
  std::uint32_t (*add_by_dice)(const GridDice& dice, std::uint32_t first_block,
                               const float* gradient, const std::int16_t* exponents,
                               std::int32_t limit, std::uint32_t blocks, std::int32_t* sums,
                               std::uint64_t* weighted, std::uint32_t* outside);
  // Returns the weighted sum of blocks.
  std::uint64_t (*weigh)(std::uint32_t first, std::uint32_t blocks, const std::int32_t* values);
  // mean = fp32(total * 2^x / M), rounded once.
  void (*mean)(const std::int32_t* totals, double scale, double micro_batches, float* mean);
  // Sums the squares of a block's totals, each rounded to a float: low and high 64 bits.
  void (*squares)(const std::int32_t* totals, std::uint64_t* sum);
  // Returns the largest magnitude, as bits of a float (NaN above infinity above all finite).
  std::uint32_t (*largest)(const float* values);
};
const BlockKernels& plain_kernels();
// Returns the AVX2 ones if compiled in and this CPU has it, else the plain ones.
const BlockKernels& block_kernels();

bool all_finite(std::span<const float> values);  // size a multiple of kBlock

}  // namespace starling::kernels
