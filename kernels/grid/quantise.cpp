#include "kernels/grid/quantise.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/check.h"
#include "core/base/proof.h"
#include "kernels/grid/quantise_avx2.h"

namespace starling::kernels {
namespace {

std::uint64_t weigh_plain(std::uint32_t first, std::uint32_t blocks, const std::int32_t* values) {
  std::uint64_t weighted = 0;
  for (std::uint32_t i = 0; i < blocks * kBlock; ++i)
    weighted += static_cast<std::uint64_t>(std::int64_t{values[i]} * weight_of(first + i));
  return weighted;
}

bool add_block(const float* gradient, GridScale scale, std::int32_t limit, std::uint32_t first,
               std::int32_t* sums, std::uint64_t* weighted) {
  std::int32_t q[kBlock];
  for (std::uint32_t i = 0; i < kBlock; ++i) {
    if (!quantise(gradient[i], scale, limit, q[i])) return false;
  }
  for (std::uint32_t i = 0; sums != nullptr && i < kBlock; ++i) sums[i] += q[i];
  *weighted += weigh_plain(first, 1, q);
  return true;
}

std::uint32_t add_plain(const float* gradient, const std::int16_t* exponents, std::int32_t limit,
                        std::uint32_t first, std::uint32_t blocks, std::int32_t* sums,
                        std::uint64_t* weighted, std::uint32_t* outside) {
  std::uint32_t missed = 0;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const std::size_t at = std::size_t{b} * kBlock;
    if (!add_block(gradient + at, grid_scale(exponents[b]), limit, first + b * kBlock,
                   sums == nullptr ? nullptr : sums + at, weighted))
      outside[missed++] = b;
  }
  return missed;
}

std::uint32_t add_by_dice_plain(const GridDice& dice, std::uint32_t first_block,
                                const float* gradient, const std::int16_t* exponents,
                                std::int32_t limit, std::uint32_t blocks, std::int32_t* sums,
                                std::uint64_t* weighted, std::uint32_t* outside) {
  std::uint32_t missed = 0;
  std::int32_t q[kBlock];
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const std::size_t at = std::size_t{b} * kBlock;
    const GridScale scale = grid_scale(exponents[b]);
    bool fits = true;
    for (std::uint32_t i = 0; i < GridDice::kCalls; ++i) {
      const auto call = dice.call(first_block + b, i);
      for (std::uint32_t k = 0; k < 8; ++k) {
        const std::uint32_t e = k / 4 * (kBlock / 2) + 4 * i + k % 4;
        fits = quantise_by_dice(gradient[at + e], scale, limit, GridDice::bits_of(call, e), q[e]) &&
               fits;
      }
    }
    if (!fits) {
      outside[missed++] = b;
      continue;
    }
    for (std::uint32_t i = 0; sums != nullptr && i < kBlock; ++i) sums[at + i] += q[i];
    *weighted += weigh_plain((first_block + b) * kBlock, 1, q);
  }
  return missed;
}

void mean_plain(const std::int32_t* totals, double scale, double micro_batches, float* mean) {
  for (std::uint32_t i = 0; i < kBlock; ++i) mean[i] = mean_of(totals[i], scale, micro_batches);
}

void squares_plain(const std::int32_t* totals, std::uint64_t* sum) {
  unsigned __int128 all = 0;
  for (std::uint32_t i = 0; i < kBlock; ++i) {
    const auto rounded = static_cast<std::int64_t>(static_cast<float>(totals[i]));
    all += static_cast<std::uint64_t>(rounded * rounded);  // below 2^62
  }
  sum[0] = static_cast<std::uint64_t>(all);
  sum[1] = static_cast<std::uint64_t>(all >> 64);
}

std::uint32_t largest_plain(const float* values) {
  std::uint32_t largest = 0;
  for (std::uint32_t i = 0; i < kBlock; ++i) largest = std::max(largest, magnitude_bits(values[i]));
  return largest;
}

const BlockKernels& choose_kernels() {
  const BlockKernels* avx2 = avx2_block_kernels();
  return avx2 != nullptr ? *avx2 : plain_kernels();
}

}  // namespace

Grid::Grid(std::uint32_t count, std::uint32_t wanted)
    : micro_batches(count),
      bits(wanted),
      limit_bits(30 - std::bit_width(count - 1)) {  // ceil(log2 M)
  if (bits > 0) limit_bits = std::min(limit_bits, static_cast<int>(bits) - 1);
  STARLING_CHECK(count >= 1);
  STARLING_CHECK(count <= kMicroBatchesMax);
}

Grid Grid::with_uses(std::uint32_t uses) const {
  STARLING_CHECK(uses >= 1);
  Grid grid(uses * micro_batches, bits);
  grid.micro_batches = micro_batches;
  grid.headroom_bits = headroom_bits;
  return grid;
}

std::int16_t fit_exponent(const Grid& grid, float largest) {
  STARLING_CHECK(largest > 0);
  STARLING_CHECK(std::isfinite(largest));
  return fitting(largest, grid.limit_bits - grid.headroom_bits);
}

std::int16_t next_exponent(const Grid& grid, std::int16_t exponent, float largest_mean,
                           float largest_side, Version step) {
  STARLING_CHECK(!(largest_mean < 0));
  STARLING_CHECK(!(largest_side < 0));
  return moved_exponent(grid.limit_bits, grid.headroom_bits, exponent, largest_mean, largest_side,
                        step);
}

void initial_exponents(const Grid& grid, const Layout& layout, std::span<const float> gradient,
                       std::span<std::int16_t> exponents) {
  STARLING_CHECK(gradient.size() == layout.elements());
  STARLING_CHECK(exponents.size() == layout.blocks());
  const auto& kernels = block_kernels();
  for (const TensorPlace& tensor : layout.tensors()) {
    const std::uint32_t end = tensor.first_block + tensor.blocks;
    const Grid of_tensor = grid.with_uses(tensor.spec.uses);
    std::int16_t largest = kExponentMin;
    for (std::uint32_t b = tensor.first_block; b < end; ++b) {
      const std::uint32_t bits = kernels.largest(gradient.data() + std::uint64_t{b} * kBlock);
      const bool usable = bits != 0 && bits < kInfinityBits;
      // INT16_MIN is below every exponent: the second pass replaces it.
      exponents[b] = usable ? fit_exponent(of_tensor, std::bit_cast<float>(bits)) : INT16_MIN;
      largest = std::max(largest, exponents[b]);
    }
    for (std::uint32_t b = tensor.first_block; b < end; ++b)
      if (exponents[b] == INT16_MIN) exponents[b] = largest;
  }
}

GridScale grid_scale(std::int16_t exponent) {
  STARLING_CHECK(exponent >= kExponentMin);
  STARLING_CHECK(exponent <= kExponentMax);
  return scale_of(exponent);
}

const BlockKernels& plain_kernels() {
  static constexpr BlockKernels kPlain{add_plain,  add_by_dice_plain, weigh_plain,
                                       mean_plain, squares_plain,     largest_plain};
  return kPlain;
}

const BlockKernels& block_kernels() {
  static const BlockKernels& chosen = choose_kernels();
  return chosen;
}

bool all_finite(std::span<const float> values) {
  STARLING_CHECK(values.size() % kBlock == 0);
  const auto& kernels = block_kernels();
  for (std::size_t i = 0; i < values.size(); i += kBlock)
    if (kernels.largest(values.data() + i) >= kInfinityBits) return false;
  return true;
}

}  // namespace starling::kernels
