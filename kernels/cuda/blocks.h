#pragma once
// The jobs of the grid share this device code: which blocks a thread block works
// on, and a block's elements in a warp, which are means of totals for some of them.
//
// A warp takes a block of kBlock elements: lane l has elements 4 l
// to 4 l + 3 of the first half, and the same of the second half.

#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/base/ids.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/element.h"
#include "kernels/device/jobs.h"

namespace starling::kernels::cuda {

inline constexpr std::uint32_t kLanes = 32, kWarps = 8;
inline constexpr std::uint32_t kThreads = kLanes * kWarps;
inline constexpr unsigned kAllLanes = 0xffffffff;
inline constexpr std::uint32_t kEach = kBlock / kLanes;  // elements of a lane
inline constexpr std::uint32_t kHalf = kBlock / 2;
static_assert(kEach == 8);

// A thread block takes this many blocks of a segment, four for each of its warps.
inline constexpr std::uint32_t kChunk = 4 * kWarps;
constexpr std::uint32_t chunks_of(const Listed& listed) {
  return (listed.largest + kChunk - 1) / kChunk;
}

inline bool empty(const Listed& listed) {
  return listed.count == 0 || listed.largest == 0;
}
inline dim3 grid_of(const Listed& listed) {
  return listed.count * chunks_of(listed);
}
// Returns how many thread blocks of kThreads it takes for so many threads.
constexpr std::uint32_t thread_blocks(std::uint32_t threads) {
  return (threads + kThreads - 1) / kThreads;
}

__device__ inline std::uint32_t lane_of_thread() {
  return threadIdx.x % kLanes;
}
__device__ inline std::uint32_t warp_of_thread() {
  return threadIdx.x / kLanes;
}

// A Chunk is the thread block's part: [first, end) of the blocks of
// segment `at` of the list. Empty if the segment is smaller than others.
struct Chunk {
  std::uint32_t at, first, end;

  __device__ Chunk(const Listed& listed, std::uint32_t chunks) {
    at = blockIdx.x / chunks;
    const SegmentBlocks s = listed.list[at];
    const std::uint32_t begin = blockIdx.x % chunks * kChunk;
    first = s.first + (begin < s.count ? begin : s.count);
    end = s.first + (begin + kChunk < s.count ? begin + kChunk : s.count);
  }
};

__device__ inline std::size_t element_of(std::uint32_t block) {
  return std::size_t{block} * kBlock;
}
// Returns which element of its block a lane's i-th one is.
__device__ inline std::uint32_t place(std::uint32_t i) {
  return i / 4 * kHalf + 4 * lane_of_thread() + i % 4;
}

// Loads the lane's elements of a block that begins at `at`, a multiple of 16 bytes.
__device__ inline void load(const float* at, float (&values)[kEach]) {
  for (std::uint32_t half = 0; half < 2; ++half) {
    const auto v = reinterpret_cast<const float4*>(at + half * kHalf)[lane_of_thread()];
    values[4 * half] = v.x;
    values[4 * half + 1] = v.y;
    values[4 * half + 2] = v.z;
    values[4 * half + 3] = v.w;
  }
}
__device__ inline void load(const std::int32_t* at, std::int32_t (&values)[kEach]) {
  for (std::uint32_t half = 0; half < 2; ++half) {
    const auto v = reinterpret_cast<const int4*>(at + half * kHalf)[lane_of_thread()];
    values[4 * half] = v.x;
    values[4 * half + 1] = v.y;
    values[4 * half + 2] = v.z;
    values[4 * half + 3] = v.w;
  }
}
__device__ inline void store(float* at, const float (&values)[kEach]) {
  for (std::uint32_t half = 0; half < 2; ++half)
    reinterpret_cast<float4*>(at + half * kHalf)[lane_of_thread()] = make_float4(
        values[4 * half], values[4 * half + 1], values[4 * half + 2], values[4 * half + 3]);
}
__device__ inline void store(std::int32_t* at, const std::int32_t (&values)[kEach]) {
  for (std::uint32_t half = 0; half < 2; ++half)
    reinterpret_cast<int4*>(at + half * kHalf)[lane_of_thread()] = make_int4(
        values[4 * half], values[4 * half + 1], values[4 * half + 2], values[4 * half + 3]);
}

// Sums over all lanes, with the result in each.
__device__ inline Word warp_sum(Word value) {
  for (int by = kLanes / 2; by > 0; by /= 2) value += __shfl_xor_sync(kAllLanes, value, by);
  return value;
}

// Adds the values of all threads of the block to *sum. All threads must call it.
__device__ inline void add_of_block(Word value, Word* sum) {
  __shared__ Word of_warps[kWarps];
  value = warp_sum(value);
  if (lane_of_thread() == 0) of_warps[warp_of_thread()] = value;
  __syncthreads();
  if (threadIdx.x != 0) return;
  Word all = 0;
  for (std::uint32_t w = 0; w < kWarps; ++w) all += of_warps[w];
  if (all != 0) atomicAdd(sum, all);
}

// Returns the largest magnitude of all lanes' values, as magnitude_bits().
__device__ inline std::uint32_t largest_of_warp(const float (&values)[kEach]) {
  unsigned largest = 0;
  for (const float value : values) {
    const unsigned bits = magnitude_bits(value);
    largest = bits > largest ? bits : largest;
  }
  return __reduce_max_sync(kAllLanes, largest);
}

// Means makes mean gradients of blocks. Every lane of a warp asks for the same block.
class Means {
 public:
  __device__ Means(const std::int16_t* exponents, const WideMeans& wide,
                   std::uint32_t micro_batches)
      : exponents_(exponents), wide_(wide), micro_batches_(micro_batches) {}

  // Makes the lane's values; returns the largest magnitude of the block's side entries, or 0.
  __device__ float make(std::uint32_t block, const std::int32_t (&totals)[kEach],
                        float (&mean)[kEach]) const {
    if (wide_.count > 0) {
      const std::uint32_t i = find(block);
      if (i < wide_.count) {
        load(wide_.means + std::size_t{i} * kBlock, mean);
        return wide_.largest[i];
      }
    }
    const double scale = power_of_two(exponents_[block]);
    if ((micro_batches_ & (micro_batches_ - 1)) == 0) {  // a quotient is a product then
      const double factor = scale / micro_batches_;
      for (std::uint32_t i = 0; i < kEach; ++i) mean[i] = mean_of(totals[i], factor, 1);
    } else {
      for (std::uint32_t i = 0; i < kEach; ++i) mean[i] = mean_of(totals[i], scale, micro_batches_);
    }
    return 0;
  }

 private:
  // Returns the index of a block with side entries, or their count if it has none.
  __device__ std::uint32_t find(std::uint32_t block) const {
    std::uint32_t first = 0, end = wide_.count;
    while (first < end) {
      const std::uint32_t middle = first + (end - first) / 2;
      if (wide_.blocks[middle] < block)
        first = middle + 1;
      else
        end = middle;
    }
    return first < wide_.count && wide_.blocks[first] == block ? first : wide_.count;
  }

  const std::int16_t* exponents_;
  const WideMeans wide_;
  const std::uint32_t micro_batches_;
};

// Every warp looks for its block in the list of those with side entries, which
// may lie in pinned memory: so list and magnitudes are copied to scratch.
constexpr std::size_t copied_words(const WideMeans& wide) {
  return wide.count;
}
inline WideMeans copied(cudaStream_t stream, const WideMeans& wide, Word* scratch) {
  if (wide.count == 0) return wide;
  auto* const blocks = reinterpret_cast<std::uint32_t*>(scratch);
  auto* const largest = reinterpret_cast<float*>(blocks + wide.count);
  static_assert(sizeof(*blocks) + sizeof(*largest) == sizeof(Word));
  check(
      cudaMemcpyAsync(blocks, wide.blocks, wide.count * sizeof(*blocks), cudaMemcpyDefault, stream),
      "a copy of the list of blocks with side entries");
  check(cudaMemcpyAsync(largest, wide.largest, wide.count * sizeof(*largest), cudaMemcpyDefault,
                        stream),
        "a copy of the magnitudes of side entries");
  return {blocks, wide.means, largest, wide.count};
}

}  // namespace starling::kernels::cuda
