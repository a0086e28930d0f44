#include "core/base/weight.h"
#include "kernels/cuda/blocks.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"
#include "kernels/grid/wide_sum.h"

namespace starling::kernels::cuda {
namespace {

// Returns what elements of a block add to its segment's weighted sum.
__device__ Word weighted(std::uint32_t block, const std::int32_t (&values)[kEach]) {
  Word sum = 0;
  for (std::uint32_t i = 0; i < kEach; ++i) {
    const std::uint32_t element = block * kBlock + place(i);
    sum += static_cast<Word>(static_cast<long long>(values[i]) * weight_of(element));
  }
  return sum;
}

// ---- add ----------------------------------------------------------------------------------------

// Left counts the blocks that were not added, beside the weighted sums.
struct Left {
  unsigned outside, broken;
};
static_assert(sizeof(Left) == sizeof(Word));

// Makes a call of Philox4x32-10, as core/base/philox.h does.
__device__ uint4 philox(uint4 c, uint2 key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t h0 = __umulhi(0xD2511F53u, c.x), h1 = __umulhi(0xCD9E8D57u, c.z);
    c = {h1 ^ c.y ^ key.x, 0xCD9E8D57u * c.z, h0 ^ c.w ^ key.y, 0xD2511F53u * c.x};
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return c;
}

// Writes the dice of the lane's elements of a block: a call has them all (core/base/grid_dice.h).
__device__ void throw_dice(const GridDice& dice, std::uint32_t block,
                           std::uint32_t (&thrown)[kEach]) {
  const std::uint64_t index =
      (std::uint64_t{dice.use} << 40) + std::uint64_t{block} * kLanes + lane_of_thread();
  const std::uint32_t purpose = static_cast<std::uint32_t>(Purpose::kGridRounding) << 24;
  const uint4 words = philox(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
       static_cast<std::uint32_t>(dice.step), purpose ^ dice.micro_batch},
      {static_cast<std::uint32_t>(dice.seed),
       static_cast<std::uint32_t>(dice.seed >> 32) ^ static_cast<std::uint32_t>(dice.step >> 32)});
  const std::uint32_t all[] = {words.x, words.y, words.z, words.w};
  for (std::uint32_t i = 0; i < kEach; ++i) thrown[i] = all[i % 4] >> (i < 4 ? 0 : 16) & 0xffff;
}

__global__ void __launch_bounds__(kThreads)
    add_kernel(AddJob job, Listed listed, std::uint32_t chunks, Word* sums, Left* left) {
  const Chunk chunk(listed, chunks);
  Word sum = 0;
  for (std::uint32_t b = chunk.first + warp_of_thread(); b < chunk.end; b += kWarps) {
    float gradient[kEach];
    load(job.gradient + element_of(b - job.first_block), gradient);
    for (float& value : gradient) value *= inverse_power_of_two(job.scale);
    const GridScale scale = scale_of(job.exponents[b]);
    std::int32_t q[kEach] = {};
    bool fits = true;
    if (job.by_dice) {
      std::uint32_t thrown[kEach];
      throw_dice(job.dice, b, thrown);
      for (std::uint32_t i = 0; i < kEach; ++i)
        fits = quantise_by_dice(gradient[i], scale, job.limit, thrown[i], q[i]) && fits;
    } else {
      for (std::uint32_t i = 0; i < kEach; ++i)
        fits = quantise(gradient[i], scale, job.limit, q[i]) && fits;
    }
    if (__all_sync(kAllLanes, fits)) {
      if (job.sums != nullptr) {
        std::int32_t total[kEach];
        load(job.sums + element_of(b), total);
        for (std::uint32_t i = 0; i < kEach; ++i) total[i] += q[i];
        store(job.sums + element_of(b), total);
      }
      sum += weighted(b, q);
      continue;
    }
    const bool finite = largest_of_warp(gradient) < kInfinityBits;
    if (lane_of_thread() != 0) continue;
    if (finite)
      job.outside[1 + atomicAdd(&left->outside, 1u)] = b;
    else
      atomicAdd(&left->broken, 1u);
  }
  add_of_block(sum, &sums[chunk.at]);
}

// Copies the results to where the job wants them: atomics count in the device's own memory.
__global__ void __launch_bounds__(kThreads)
    finish_add_kernel(AddJob job, std::uint32_t count, const Word* sums, const Left* left) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) job.weighted[i] = sums[i];
  if (i != 0) return;
  job.outside[0] = left->outside;
  *job.broken = left->broken;
}

// ---- gather -------------------------------------------------------------------------------------

// Each warp copies a block, to pinned memory as a rule.
__global__ void __launch_bounds__(kThreads) gather_kernel(GatherJob job) {
  const std::uint32_t i = blockIdx.x * kWarps + warp_of_thread();
  if (i >= job.count) return;
  float values[kEach];
  load(job.gradient + element_of(job.blocks[i] - job.first_block), values);
  store(job.values + element_of(i), values);
}

// ---- weigh --------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kThreads)
    weigh_kernel(const std::int32_t* values, Listed listed, std::uint32_t chunks, Word* sums) {
  const Chunk chunk(listed, chunks);
  Word sum = 0;
  for (std::uint32_t b = chunk.first + warp_of_thread(); b < chunk.end; b += kWarps) {
    std::int32_t value[kEach];
    load(values + element_of(b), value);
    sum += weighted(b, value);
  }
  add_of_block(sum, &sums[chunk.at]);
}

// ---- sum ----------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kThreads) sum_kernel(SumJob job, std::uint64_t blocks) {
  const std::uint64_t b = std::uint64_t{blockIdx.x} * kWarps + warp_of_thread();
  if (b >= blocks) return;
  std::int32_t mine[kEach], other[kEach];
  load(job.a + b * kBlock, mine);
  load(job.b + b * kBlock, other);
  for (std::uint32_t i = 0; i < kEach; ++i) mine[i] += other[i];
  store(job.sums + b * kBlock, mine);
}

// ---- wide means ---------------------------------------------------------------------------------

// Each block with side entries has a thread block, and each of its elements a thread.
__global__ void __launch_bounds__(kBlock) wide_kernel(WideJob job) {
  const std::uint32_t i = blockIdx.x, block = job.blocks[i];
  const std::uint32_t begin = i > 0 ? job.ends[i - 1] : 0, end = job.ends[i];
  WideBits sum;
  sum.add_total(job.totals[element_of(block) + threadIdx.x], job.exponents[block]);
  unsigned largest = 0;
  for (std::uint32_t e = begin; e < end; ++e) {
    const float x = job.entries[element_of(e) + threadIdx.x];
    const unsigned bits = magnitude_bits(x);
    largest = bits > largest ? bits : largest;
    sum.add(x);
  }
  job.means[element_of(i) + threadIdx.x] = sum.mean(job.micro_batches);

  __shared__ unsigned of_warps[kBlock / kLanes];
  largest = __reduce_max_sync(kAllLanes, largest);
  if (lane_of_thread() == 0) of_warps[warp_of_thread()] = largest;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const unsigned of_warp : of_warps) largest = of_warp > largest ? of_warp : largest;
  job.largest[i] = __uint_as_float(largest);
}

// ---- squares ------------------------------------------------------------------------------------

constexpr std::uint32_t kBins =
    256;  // of SquareSum (kernels/grid/exact_mean.h), by biased exponent

// A Bin has sums of lower and of upper halves of words: neither carries, for 2^32 words.
struct Bin {
  Word low, high;
};
__device__ void add_to_bin(Bin* bin, Word sum) {
  atomicAdd(&bin->low, sum & 0xffffffffu);
  atomicAdd(&bin->high, sum >> 32);
}

// Adds squares of a block's means to the bins. Squares of neighbouring exponents,
// which are multiples of each other's units, go to the lowest one's bin together:
// few rounds for a block, whose means mostly lie within a few powers of two.
__device__ void add_squares(float (&mean)[kEach], Bin* bins) {
  constexpr int kTogether = 5;  // 256 squares of 48 bits and 2 (5 - 1) more fit a word
  while (true) {
    const std::uint32_t largest = largest_of_warp(mean);
    if (largest == 0) return;
    const int top = FloatParts(__uint_as_float(largest)).unit();
    const int unit = top > kTogether - 1 ? top - (kTogether - 1) : 0;
    Word sum = 0;
    for (float& x : mean) {
      const FloatParts p(x);
      if (p.unit() < unit) continue;
      const Word square = static_cast<Word>(p.significand) * p.significand;
      sum += square << (2 * (p.unit() - unit));
      x = 0;
    }
    sum = warp_sum(sum);
    if (lane_of_thread() == 0) add_to_bin(&bins[unit + 1], sum);
  }
}

__global__ void __launch_bounds__(kThreads)
    squares_kernel(SquaresJob job, Listed listed, std::uint32_t chunks, Word* sums, Bin* bins) {
  __shared__ Bin own[kBins];
  for (std::uint32_t e = threadIdx.x; e < kBins; e += kThreads) own[e] = {0, 0};
  __syncthreads();
  const Chunk chunk(listed, chunks);
  const Means means(job.exponents, job.wide, job.micro_batches);
  Word sum = 0;
  for (std::uint32_t b = chunk.first + warp_of_thread(); b < chunk.end; b += kWarps) {
    std::int32_t total[kEach];
    load(job.totals + element_of(b), total);
    sum += weighted(b, total);
    float mean[kEach];
    means.make(b, total, mean);
    for (std::uint32_t i = 0; i < kEach; ++i)
      if (place(i) >= job.used[b]) mean[i] = 0;
    add_squares(mean, own);
  }
  add_of_block(sum, &sums[chunk.at]);
  __syncthreads();
  for (std::uint32_t e = threadIdx.x; e < kBins; e += kThreads) {
    if (own[e].low == 0 && own[e].high == 0) continue;
    atomicAdd(&bins[e].low, own[e].low);
    atomicAdd(&bins[e].high, own[e].high);
  }
}

// Adds bin i to two words, the low one first.
__device__ void add_bin(std::uint32_t i, const Bin* bins, std::uint64_t* words) {
  const Bin bin = bins[i];
  const std::uint64_t low = bin.low + (bin.high << 32);
  const std::uint64_t high = (bin.high >> 32) + (low < bin.low ? 1 : 0);
  words[2 * i] += low;
  words[2 * i + 1] += high + (words[2 * i] < low ? 1 : 0);
}

__global__ void __launch_bounds__(kThreads)
    finish_squares_kernel(SquaresJob job, std::uint32_t count, const Word* sums, const Bin* bins) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) job.weighted[i] = sums[i];
  if (i < kBins) add_bin(i, bins, job.bins);
}

__global__ void __launch_bounds__(kThreads) norm_kernel(NormJob job, Bin* bins, Word* broken) {
  __shared__ Bin own[kBins];
  for (std::uint32_t e = threadIdx.x; e < kBins; e += kThreads) own[e] = {0, 0};
  __syncthreads();
  for (std::uint32_t b = blockIdx.x * kWarps + warp_of_thread(); b < job.blocks;
       b += gridDim.x * kWarps) {
    float values[kEach];
    load(job.gradient + element_of(b), values);
    bool finite = true;
    for (std::uint32_t i = 0; i < kEach; ++i) {
      if (place(i) >= job.used[b]) values[i] = 0;
      finite = finite && isfinite(values[i]);
    }
    if (!__all_sync(kAllLanes, finite)) {
      if (lane_of_thread() == 0) atomicAdd(broken, Word{1});
    } else if (job.counted[b] > 0) {
      add_squares(values, own);
    }
  }
  __syncthreads();
  for (std::uint32_t e = threadIdx.x; e < kBins; e += kThreads) {
    if (own[e].low == 0 && own[e].high == 0) continue;
    atomicAdd(&bins[e].low, own[e].low);
    atomicAdd(&bins[e].high, own[e].high);
  }
}

__global__ void __launch_bounds__(kThreads)
    finish_norm_kernel(NormJob job, const Bin* bins, const Word* broken) {
  if (threadIdx.x < kBins) add_bin(threadIdx.x, bins, job.bins);
  if (threadIdx.x == 0) *job.broken += static_cast<std::uint32_t>(*broken);
}

void zero(cudaStream_t stream, Word* words, std::size_t count) {
  check(cudaMemsetAsync(words, 0, count * sizeof(Word), stream), "zeroing sums");
}

}  // namespace

std::size_t scratch_words(const AddJob&, const Listed& listed) {
  return listed.count + sizeof(Left) / sizeof(Word);
}

void add(cudaStream_t stream, const AddJob& job, const Listed& listed, Word* scratch) {
  zero(stream, scratch, scratch_words(job, listed));
  auto* const left = reinterpret_cast<Left*>(scratch + listed.count);
  if (!empty(listed))
    launch(stream, grid_of(listed), kThreads, 0, add_kernel, job, listed, chunks_of(listed),
           scratch, left);
  launch(stream, thread_blocks(listed.count + 1), kThreads, 0, finish_add_kernel, job, listed.count,
         scratch, left);
}

void gather(cudaStream_t stream, const GatherJob& job) {
  if (job.count > 0)
    launch(stream, (job.count + kWarps - 1) / kWarps, kThreads, 0, gather_kernel, job);
}

std::size_t scratch_words(const WeighJob&, const Listed& listed) {
  return listed.count;
}

void weigh(cudaStream_t stream, const WeighJob& job, const Listed& listed, Word* scratch) {
  if (listed.count == 0) return;
  zero(stream, scratch, listed.count);
  if (!empty(listed))
    launch(stream, grid_of(listed), kThreads, 0, weigh_kernel, job.sums, listed, chunks_of(listed),
           scratch);
  check(cudaMemcpyAsync(job.weighted, scratch, listed.count * sizeof(Word), cudaMemcpyDefault,
                        stream),
        "a copy of weighted sums");
}

void sum(cudaStream_t stream, const SumJob& job) {
  const std::uint64_t blocks = job.elements / kBlock;
  if (blocks == 0) return;
  launch(stream, static_cast<std::uint32_t>((blocks + kWarps - 1) / kWarps), kThreads, 0,
         sum_kernel, job, blocks);
}

void wide_means(cudaStream_t stream, const WideJob& job) {
  if (job.count > 0) launch(stream, job.count, kBlock, 0, wide_kernel, job);
}

std::size_t scratch_words(const SquaresJob& job, const Listed& listed) {
  return 2 * kBins + listed.count + copied_words(job.wide);
}

void squares(cudaStream_t stream, const SquaresJob& job, const Listed& listed, Word* scratch) {
  auto* const bins = reinterpret_cast<Bin*>(scratch);
  Word* const sums = scratch + 2 * kBins;
  SquaresJob here = job;
  here.wide = copied(stream, job.wide, sums + listed.count);
  zero(stream, scratch, 2 * kBins + listed.count);
  if (!empty(listed))
    launch(stream, grid_of(listed), kThreads, 0, squares_kernel, here, listed, chunks_of(listed),
           sums, bins);
  launch(stream, thread_blocks(listed.count > kBins ? listed.count : kBins), kThreads, 0,
         finish_squares_kernel, job, listed.count, sums, bins);
}

std::size_t scratch_words(const NormJob&) {
  return 2 * kBins + 1;
}

void norm(cudaStream_t stream, const NormJob& job, Word* scratch) {
  if (job.blocks == 0) return;
  constexpr std::uint32_t kThreadBlocksMax = 1024;  // each of which writes its bins once
  zero(stream, scratch, scratch_words(job));
  auto* const bins = reinterpret_cast<Bin*>(scratch);
  Word* const broken = scratch + 2 * kBins;
  const std::uint32_t wanted = (job.blocks + kWarps - 1) / kWarps;
  launch(stream, wanted < kThreadBlocksMax ? wanted : kThreadBlocksMax, kThreads, 0, norm_kernel,
         job, bins, broken);
  launch(stream, 1, kThreads, 0, finish_norm_kernel, job, bins, broken);
}

}  // namespace starling::kernels::cuda
