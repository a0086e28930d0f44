#pragma once
// Tiles of row-major matrices lie in shared memory; a warp multiplies pieces of them.
//
// An element is a float or of 16 bits (half.h). Lines of a tile begin at multiples of 16 bytes, and 16 bytes
// more than a power of two apart: the eight lines that ldmatrix reads at once lie in distinct banks.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/half.h"

namespace starling::kernels::cuda {

// Rounds both to the nearest, ties to even.
template <class T>
__device__ ushort2 two_halves(float x, float y) {
  const std::uint32_t two = pack_two<T>(x, y);
  return make_ushort2(static_cast<std::uint16_t>(two), static_cast<std::uint16_t>(two >> 16));
}

// One copy of 16 bytes moves this many elements.
template <class T>
inline constexpr unsigned kChunk = 16 / sizeof(T);

// A Part of a matrix has `lines` lines of `width` elements.
template <class T>
struct Part {
  const T* at;
  std::size_t ld;
  unsigned lines, width;
  bool chunks;  // `at` and every line begin at multiples of 16 bytes
};

// Loads the part into the tile [kLines][kWidth], with zeros where the part ends.
// Columns from `used` on, a multiple of a chunk, stay as they are. Before a thread
// reads the tile, it has to wait for its asynchronous copies and for the other threads.
template <unsigned kLines, unsigned kWidth, unsigned kStride, unsigned kThreads, class T>
__device__ inline void load_tile(T* tile, const Part<T>& from, unsigned used = kWidth) {
  constexpr unsigned kAcross = kWidth / kChunk<T>;
  static_assert(kLines * kAcross % kThreads == 0);
#pragma unroll
  for (unsigned first = 0; first < kLines * kAcross; first += kThreads) {
    const unsigned line = (first + threadIdx.x) / kAcross;
    const unsigned column = (first + threadIdx.x) % kAcross * kChunk<T>;
    if (column >= used) continue;
    T* const to = tile + line * kStride + column;
    const bool there = line < from.lines;
    if (there && from.chunks && column + kChunk<T> <= from.width) {
      copy_async_16(to, from.at + line * from.ld + column);
    } else {
      for (unsigned e = 0; e < kChunk<T>; ++e)
        to[e] = there && column + e < from.width ? from.at[line * from.ld + column + e] : T{};
    }
  }
}

// These load fragments of mma.m16n8k16. Rows are those of the left operand, or
// columns of the right one; the sum runs over depth. kByDepth: the tile's lines
// run along the rows ([depth][row]); else along the depth ([row][depth]).
//
// A warp's accumulators, in all of this folder: lane l holds, of 16 rows and 8 columns, elements
// {0, 1} at row l / 4 and columns 2 (l % 4) + {0, 1}, and elements {2, 3} at row l / 4 + 8.
template <bool kByDepth, class T>
__device__ inline void load_four(std::uint32_t (&four)[4], const T* tile, unsigned stride,
                                 unsigned row, unsigned depth) {
  const unsigned line = threadIdx.x % 8;
  if constexpr (kByDepth)
    load_matrix_x4_transposed(four, tile + (depth + line) * stride + row);
  else
    load_matrix_x4(four, tile + (row + line) * stride + depth);
}
// Loads 16 rows of the left operand.
template <bool kByDepth, class T>
__device__ inline void load_left(std::uint32_t (&left)[4], const T* tile, unsigned stride,
                                 unsigned row, unsigned depth) {
  const unsigned matrix = threadIdx.x % 32 / 8;
  load_four<kByDepth>(left, tile, stride, row + matrix % 2 * 8, depth + matrix / 2 * 8);
}
// Loads 16 columns of the right operand: two fragments, one after the other.
template <bool kByDepth, class T>
__device__ inline void load_right(std::uint32_t (&right)[4], const T* tile, unsigned stride,
                                  unsigned row, unsigned depth) {
  const unsigned matrix = threadIdx.x % 32 / 8;
  load_four<kByDepth>(right, tile, stride, row + matrix / 2 * 8, depth + matrix % 2 * 8);
}
// Multiplies 16 rows by 16 columns: two accumulators, neighbours in columns.
template <class T>
__device__ inline void multiply_pair(float (&first)[4], float (&second)[4],
                                     const std::uint32_t (&left)[4],
                                     const std::uint32_t (&right)[4]) {
  const std::uint32_t to_first[2] = {right[0], right[1]}, to_second[2] = {right[2], right[3]};
  mma<T>(first, left, to_first);
  mma<T>(second, left, to_second);
}

}  // namespace starling::kernels::cuda
