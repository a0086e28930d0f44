#include "kernels/device/host_jobs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/job/segment_values.h"
#include "kernels/device/element.h"
#include "kernels/device/job_checks.h"
#include "kernels/grid/exact_mean.h"
#include "kernels/grid/quantise.h"
#include "kernels/optim/optimizer.h"
#include "kernels/optim/update.h"

namespace starling::kernels {
namespace {

// Blocks are updated together: few optimizer calls, gradient still in the first-level cache.
constexpr std::uint32_t kRunBlocks = 16;

constexpr std::size_t element(std::uint32_t block) {
  return std::size_t{block} * kBlock;
}

std::uint64_t weighted(const SegmentBlocks& s, const std::int32_t* sums) {
  return block_kernels().weigh(static_cast<std::uint32_t>(element(s.first)), s.count,
                               sums + element(s.first));
}

// Returns the bytes of a segment's part of a flat array.
template <class T>
ByteView bytes_of(const T* values, std::size_t first, std::size_t count) {
  return as_bytes(std::span<const T>(values + first, count));
}

std::uint64_t checksum_of(const SegmentBlocks& s, const std::int16_t* exponents,
                          std::span<const float* const> arrays, std::uint64_t seed,
                          std::uint32_t first_block = 0) {
  std::uint64_t hash = hash64(bytes_of(exponents, s.first, s.count), seed);
  for (const float* array : arrays)
    if (array != nullptr)
      hash = hash64(bytes_of(array, element(s.first - first_block), element(s.count)), hash);
  return hash;
}

// Means makes the mean gradients of blocks in ascending order.
class Means {
 public:
  Means(const std::int32_t* totals, const std::int16_t* exponents, const WideMeans& wide,
        std::uint32_t micro_batches)
      : totals_(totals), exponents_(exponents), wide_(wide), micro_batches_(micro_batches) {}

  // Returns the x with which each mean of the block is its total, rounded to a float, times 2^x, if
  // there is one: where M is a power of two, without side entries and far from the smallest floats.
  std::optional<int> unit(std::uint32_t block) const {
    if (!std::has_single_bit(micro_batches_) || find(block) != nullptr) return std::nullopt;
    const int x = exponents_[block] - std::countr_zero(micro_batches_);
    if (x < kLowestUnit) return std::nullopt;
    return x;
  }

  // Writes mean[kBlock]; returns the largest magnitude of the block's side entries, or 0.
  float make(std::uint32_t block, float* mean) const {
    if (const std::uint32_t* const found = find(block)) {
      const std::ptrdiff_t i = found - wide_.blocks;
      std::copy_n(wide_.means + i * std::ptrdiff_t{kBlock}, kBlock, mean);
      return wide_.largest[i];
    }
    kernels_.mean(totals_ + element(block), std::ldexp(1.0, exponents_[block]), micro_batches_,
                  mean);
    return 0;
  }

 private:
  static constexpr int kLowestUnit = -149;  // of the smallest float

  const std::uint32_t* find(std::uint32_t block) const {
    if (wide_.count == 0) return nullptr;
    const auto* end = wide_.blocks + wide_.count;
    const auto* found = std::lower_bound(wide_.blocks, end, block);
    return found != end && *found == block ? found : nullptr;
  }

  const BlockKernels& kernels_ = block_kernels();
  const std::int32_t* totals_;
  const std::int16_t* exponents_;
  const WideMeans wide_;
  const std::uint32_t micro_batches_;
};

// Counts the blocks from here that are of one group; only the last of them may have padding.
template <class Job>
std::uint32_t run_from(const Job& job, std::uint32_t block, std::uint32_t end) {
  std::uint32_t n = 1;
  while (n < kRunBlocks && block + n < end && job.used[block + n - 1] == kBlock &&
         job.groups[block + n] == job.groups[block])
    ++n;
  return n;
}

void update_run(const ApplyJob& job, const Grid& grid, const Means& means, std::uint32_t first,
                std::uint32_t blocks) {
  std::array<float, std::size_t{kRunBlocks} * kBlock> gradient;
  std::size_t used = 0;
  const bool statistics = job.numbers.groups[job.groups[first]].statistics;
  for (std::uint32_t i = 0; i < blocks; ++i) {
    const std::uint32_t b = first + i;
    float* mean = gradient.data() + element(i);
    const float largest_side = means.make(b, mean);
    const auto largest = std::bit_cast<float>(block_kernels().largest(mean));
    job.exponents[b] = statistics ? kStatisticsExponent
                                  : next_exponent(grid, job.exponents[b], largest, largest_side,
                                                  Version(job.step));
    used += job.used[b];
  }
  if (job.skipped) return;
  const auto part = [&](float* array) { return std::span(array + element(first), used); };
  update(job.numbers, job.groups[first], std::span<const float>(gradient).first(used),
         part(job.weights), part(job.first),
         job.second != nullptr ? part(job.second) : std::span<float>());
}

void publish(std::span<const float> weights, Precision precision, float* parameters) {
  if (precision == Precision::kFp32)
    std::ranges::copy(weights, parameters);
  else
    std::ranges::transform(weights, parameters, [&](float w) { return rounded(w, precision); });
}

}  // namespace

void run(const AddJob& job) {
  check(job);
  const auto& kernels = block_kernels();
  std::vector<float> unscaled;
  // Returns the gradient of blocks from this one on, as they count.
  const auto gradient = [&](std::uint32_t block, std::uint32_t count) {
    const float* const given = job.gradient + element(block - job.first_block);
    if (job.scale == 0) return given;
    unscaled.assign(given, given + element(count));
    for (float& value : unscaled) value *= inverse_power_of_two(job.scale);
    return static_cast<const float*>(unscaled.data());
  };
  std::uint32_t missed = 0;
  *job.broken = 0;
  for (std::uint32_t i = 0; i < job.segments.count; ++i) {
    const SegmentBlocks& s = job.segments.list[i];
    const std::size_t at = element(s.first);
    job.weighted[i] = 0;
    std::uint32_t* outside = job.outside + 1 + missed;
    const float* const values = gradient(s.first, s.count);
    std::int32_t* const sums = job.sums == nullptr ? nullptr : job.sums + at;
    const std::uint32_t here =
        job.by_dice
            ? kernels.add_by_dice(job.dice, s.first, values, job.exponents + s.first, job.limit,
                                  s.count, sums, &job.weighted[i], outside)
            : kernels.add(values, job.exponents + s.first, job.limit,
                          static_cast<std::uint32_t>(at), s.count, sums, &job.weighted[i], outside);
    std::uint32_t finite = 0;
    for (std::uint32_t k = 0; k < here; ++k) {
      const std::uint32_t block = s.first + outside[k];
      if (all_finite({values + element(outside[k]), kBlock}))
        outside[finite++] = block;
      else
        ++*job.broken;
    }
    missed += finite;
  }
  job.outside[0] = missed;
}

void run(const GatherJob& job) {
  check(job);
  for (std::uint32_t i = 0; i < job.count; ++i)
    std::copy_n(job.gradient + element(job.blocks[i] - job.first_block), kBlock,
                job.values + element(i));
}

void run(const WeighJob& job) {
  check(job);
  for (std::uint32_t i = 0; i < job.segments.count; ++i)
    job.weighted[i] = weighted(job.segments.list[i], job.sums);
}

void run(const SumJob& job) {
  check(job);
  for (std::uint64_t i = 0; i < job.elements; ++i) job.sums[i] = job.a[i] + job.b[i];
}

void run(const WideJob& job) {
  check(job);
  std::uint32_t begin = 0;
  for (std::uint32_t i = 0; i < job.count; ++i) {
    const std::uint32_t block = job.blocks[i];
    const std::span<const float> values(job.entries + element(begin), element(job.ends[i] - begin));
    float largest = 0;
    for (const float x : values) largest = std::max(largest, std::fabs(x));
    job.largest[i] = largest;
    for (std::uint32_t e = 0; e < kBlock; ++e) {
      WideSum sum;
      sum.add_total(job.totals[element(block) + e], job.exponents[block]);
      for (std::size_t at = e; at < values.size(); at += kBlock) sum.add(values[at]);
      job.means[element(i) + e] = sum.mean(job.micro_batches);
    }
    begin = job.ends[i];
  }
}

void run(const SquaresJob& job) {
  check(job);
  const Means means(job.totals, job.exponents, job.wide, job.micro_batches);
  SquareSum squares;
  std::array<float, kBlock> mean;
  for (std::uint32_t i = 0; i < job.segments.count; ++i) {
    const SegmentBlocks& s = job.segments.list[i];
    job.weighted[i] = weighted(s, job.totals);
    for (std::uint32_t b = s.first; b < s.first + s.count; ++b) {
      if (job.used[b] == 0) continue;
      // Elements that do not count are zeros in any other block.
      if (const auto unit = means.unit(b)) {
        std::array<std::uint64_t, 2> sum;
        block_kernels().squares(job.totals + element(b), sum.data());
        squares.add_sum(sum, *unit);
        continue;
      }
      means.make(b, mean.data());
      squares.add(std::span<const float>(mean).first(job.used[b]));
    }
  }
  squares.add_to(std::span<std::uint64_t, SquareSum::kWords>(job.bins, SquareSum::kWords));
}

void run(const ApplyJob& job) {
  check(job);
  Grid grid(job.micro_batches);
  grid.limit_bits = job.limit_bits;
  grid.headroom_bits = job.headroom_bits;
  const Means means(job.totals, job.exponents, job.wide, job.micro_batches);
  const float* const arrays[] = {job.weights, job.first, job.second};
  for (std::uint32_t i = 0; i < job.segments.count; ++i) {
    const SegmentBlocks& s = job.segments.list[i];
    const std::uint32_t end = s.first + s.count;
    for (std::uint32_t b = s.first; b < end;) {
      const std::uint32_t n = run_from(job, b, end);
      update_run(job, grid, means, b, n);
      b += n;
    }
    job.checksums[i] = checksum_of(s, job.exponents, arrays, job.step + 1);
  }
}

void run(const PublishJob& job) {
  check(job);
  for (std::uint32_t i = 0; i < job.segments.count; ++i) {
    const SegmentBlocks& s = job.segments.list[i];
    const std::span<const float> weights(job.weights + element(s.first), element(s.count));
    float* parameters = job.parameters + element(s.first);
    publish(weights, job.precision, parameters);
    std::copy_n(job.held_exponents + s.first, s.count, job.exponents + s.first);
    job.checksums[i] = checksum_of(s, job.exponents, {&job.parameters, 1}, 0);
  }
}

void run(const MultipleJob& job) {
  check(job);
  const float factor = job.factor;
  const float* const from = job.from;
  float* const to = job.to;
  if (job.adds)
    for (std::uint64_t i = 0; i < job.elements; ++i) to[i] += factor * from[i];
  else if (factor == 1)
    std::copy_n(from, job.elements, to);
  else
    for (std::uint64_t i = 0; i < job.elements; ++i) to[i] = factor * from[i];
}

void run(const DifferenceJob& job) {
  check(job);
  for (std::uint64_t i = 0; i < job.elements; ++i)
    job.difference[i] = lost(job.before[i], job.after[i]);
}

void run(const NormJob& job) {
  check(job);
  SquareSum squares;
  for (std::uint32_t b = 0; b < job.blocks; ++b) {
    const std::span<const float> block(job.gradient + element(b), job.used[b]);
    if (!std::ranges::all_of(block, [](float x) { return std::isfinite(x); }))
      ++*job.broken;
    else if (job.counted[b] > 0)
      squares.add(block);
  }
  squares.add_to(std::span<std::uint64_t, SquareSum::kWords>(job.bins, SquareSum::kWords));
}

void run(const LocalStepJob& job) {
  check(job);
  for (std::uint32_t b = 0; b < job.blocks;) {
    const std::uint32_t n = run_from(job, b, job.blocks);
    const std::size_t used = element(n - 1) + job.used[b + n - 1];
    const auto part = [&](auto* array) {
      return array == nullptr ? std::span(array, 0) : std::span(array + element(b), used);
    };
    update(job.numbers, job.groups[b], part(job.gradient), part(job.weights), part(job.first),
           part(job.second));
    if (job.parameters != job.weights)
      publish(part(static_cast<const float*>(job.weights)), job.precision,
              job.parameters + element(b));
    b += n;
  }
}

void run(const ChecksumJob& job) {
  check(job);
  for (std::uint32_t i = 0; i < job.segments.count; ++i)
    job.checksums[i] =
        checksum_of(job.segments.list[i], job.exponents, job.arrays, job.seeds[i], job.first_block);
}

void run(const DigestJob& job) {
  check(job);
  Bytes scratch;
  for (std::uint32_t i = 0; i < job.segments.count; ++i) {
    const SegmentBlocks& s = job.segments.list[i];
    std::array<std::span<const float>, 3> arrays;
    for (std::size_t a = 0; a < arrays.size(); ++a)
      if (job.arrays[a] != nullptr)
        arrays[a] = {job.arrays[a] + element(s.first), element(s.count)};
    std::span<const std::int16_t> exponents;
    if (job.exponents != nullptr) exponents = {job.exponents + s.first, s.count};
    const Digest digest =
        segment_digest(SegmentId(s.id), {job.used + s.first, s.count}, arrays, exponents, scratch);
    job.digests[2 * std::size_t{i}] = digest[0];
    job.digests[2 * std::size_t{i} + 1] = digest[1];
  }
}

}  // namespace starling::kernels
