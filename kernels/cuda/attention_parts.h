#pragma once
// The kernels of attention share this code (attention.cu, attention_backward.cu).
//
// The three kernels have one form. A block has a fixed run of rows of one head (queries, or keys
// in the pass that makes dK and dV) and walks over tiles of the other kind; a warp has 16 kM of
// the fixed rows and all columns of a tile. Scores live in the accumulators of mma.m16n8k16
// (tile.h) and go from there into the second product without passing through memory. For floats
// the same accumulators are filled by fused multiply-adds, so that all code between two products
// is written once. Tiles are walked in rising order, and no two blocks write the same element.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/layers.h"
#include "kernels/cuda/tile.h"

namespace starling::kernels::cuda {

inline constexpr float kLog2E = 1.44269504f;

// kWidth: the largest head width that fits. kWhole: the head has exactly that width, so that
// loops over it are unrolled. kM: 16 kM rows a warp. kColumns: of a tile that a block walks over.
template <class T, unsigned kWidth_, bool kWhole_, unsigned kM_, unsigned kColumns_>
struct AttentionForm {
  using Element = T;
  static constexpr unsigned kWidth = kWidth_, kM = kM_, kColumns = kColumns_;
  static constexpr bool kWhole = kWhole_;
  // Four tiles of 64 wide rows of floats would not fit into the 99 KiB that every device has.
  static constexpr unsigned kWarps = kWidth * sizeof(T) > 256 ? 2 : 4, kThreads = 32 * kWarps;
  static constexpr unsigned kRows = 16 * kM * kWarps;
  static constexpr unsigned kN = kColumns / 8;
  static constexpr unsigned kAcross = kWidth / 8;
  static constexpr unsigned kStride = kWidth + kChunk<T>;
};

// All three kernels take this argument.
struct AttentionWork {
  AttentionShape shape;
  float scale;  // of scores: 1 / sqrt(head_width)
  bool chunks;  // Part::chunks, of every head's rows
  bool pairs;   // two neighbours of a result may be written as one
  HeadRows<const void> in;
  const void* d_out;
  void* out;  // of the forward pass
  HeadRows<void> d_in;
  std::size_t out_stride;  // elements between rows of out
  float* log_sums;
  const float* dots;
};

// HeadPlace says where the rows of a head lie.
struct HeadPlace {
  std::size_t first_row;  // of the sequence
  std::size_t statistic;  // of log_sums and dots, where the head's begin
  std::size_t query;      // elements before the head's, in a row of queries and of out
  std::size_t key;        // the same, of keys and values
};
__device__ inline HeadPlace place_of(const AttentionShape& s, unsigned head) {
  HeadPlace p;
  p.first_row = static_cast<std::size_t>(blockIdx.z) * s.positions;
  p.statistic = (static_cast<std::size_t>(blockIdx.z) * s.heads + head) * s.positions;
  p.query = static_cast<std::size_t>(head) * s.head_width;
  p.key = static_cast<std::size_t>(head / s.group) * s.head_width;
  return p;
}

// Each returns the head's rows from `row` on.
template <class T>
__device__ inline Part<T> rows_from(const AttentionWork& w, const HeadPlace& p, const void* of,
                                    std::size_t stride, std::size_t head, unsigned row) {
  const T* const at = static_cast<const T*>(of) + (p.first_row + row) * stride + head;
  return {at, stride, w.shape.positions - row, w.shape.head_width, w.chunks};
}
template <class T>
__device__ inline Part<T> queries_of(const AttentionWork& w, const HeadPlace& p, unsigned row) {
  return rows_from<T>(w, p, w.in.queries, w.in.query_stride, p.query, row);
}
template <class T>
__device__ inline Part<T> keys_of(const AttentionWork& w, const HeadPlace& p, unsigned row) {
  return rows_from<T>(w, p, w.in.keys, w.in.key_value_stride, p.key, row);
}
template <class T>
__device__ inline Part<T> values_of(const AttentionWork& w, const HeadPlace& p, unsigned row) {
  return rows_from<T>(w, p, w.in.values, w.in.key_value_stride, p.key, row);
}
template <class T>
__device__ inline Part<T> d_out_of(const AttentionWork& w, const HeadPlace& p, unsigned row) {
  return rows_from<T>(w, p, w.d_out, w.out_stride, p.query, row);
}

// Returns whether a row does not see a key, as that is of a later row or out of the window: without a sign, the
// distance to a later one is large, too.
__device__ inline bool hides(const AttentionShape& s, unsigned row, unsigned key) {
  return row - key >= s.window;
}
// Returns whether a warp's rows from `row` on, and a tile's keys from `key` on, have a pair that hides().
template <class F>
__device__ inline bool hides_some(const AttentionShape& s, unsigned row, unsigned key) {
  return key + F::kColumns - 1 > row || row + 16 * F::kM - 1 >= key + s.window;
}
// The same of a warp's keys and a tile's rows.
template <class F>
__device__ inline bool keys_hide_some(const AttentionShape& s, unsigned key, unsigned row) {
  return row < key + 16 * F::kM - 1 || row + F::kColumns - 1 >= key + s.window;
}
// Returns the first key that any row from `row` on sees.
__device__ inline unsigned first_key(const AttentionShape& s, unsigned row) {
  return row >= s.window ? row + 1 - s.window : 0;
}

// ---- the two products of a warp -----------------------------------------------------------------

// sums[rows, columns] += left[rows, depth] right[columns, depth], both tiles in shared memory; depth
// is a multiple of 16.
template <unsigned kM, unsigned kN, Precision kPrecision>
__device__ inline void multiply_rows(float (&sums)[kM][kN][4], const Half<kPrecision>* left,
                                     const Half<kPrecision>* right, unsigned stride,
                                     unsigned depth) {
#pragma unroll 2
  for (unsigned d = 0; d < depth; d += 16) {
    std::uint32_t a[kM][4];
#pragma unroll
    for (unsigned m = 0; m < kM; ++m) load_left<false>(a[m], left, stride, 16 * m, d);
#pragma unroll
    for (unsigned n = 0; n < kN; n += 2) {
      std::uint32_t b[4];
      load_right<false>(b, right, stride, 8 * n, d);
#pragma unroll
      for (unsigned m = 0; m < kM; ++m)
        multiply_pair<Half<kPrecision>>(sums[m][n], sums[m][n + 1], a[m], b);
    }
  }
}
template <unsigned kM, unsigned kN>
__device__ inline void multiply_rows(float (&sums)[kM][kN][4], const float* left,
                                     const float* right, unsigned stride, unsigned depth) {
  const unsigned row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (unsigned d = 0; d < depth; ++d) {
#pragma unroll
    for (unsigned m = 0; m < kM; ++m) {
      const float upper = left[(16 * m + row) * stride + d];
      const float lower = left[(16 * m + row + 8) * stride + d];
#pragma unroll
      for (unsigned n = 0; n < kN; ++n) {
        const float first = right[(8 * n + column) * stride + d];
        const float second = right[(8 * n + column + 1) * stride + d];
        sums[m][n][0] = __fmaf_rn(upper, first, sums[m][n][0]);
        sums[m][n][1] = __fmaf_rn(upper, second, sums[m][n][1]);
        sums[m][n][2] = __fmaf_rn(lower, first, sums[m][n][2]);
        sums[m][n][3] = __fmaf_rn(lower, second, sums[m][n][3]);
      }
    }
  }
}

// sums[rows, width] += left[rows, depth] right[depth, width]: left in accumulators, right in shared
// memory; columns from `width` (a multiple of 16) on are not wanted.
template <unsigned kM, unsigned kDepth, unsigned kN, Precision kPrecision>
__device__ inline void multiply_scores(float (&sums)[kM][kN][4], const float (&left)[kM][kDepth][4],
                                       const Half<kPrecision>* right, unsigned stride,
                                       unsigned width) {
#pragma unroll
  for (unsigned k = 0; k < kDepth; k += 2) {
    std::uint32_t a[kM][4];
#pragma unroll
    for (unsigned m = 0; m < kM; ++m) {
      const auto &near = left[m][k], &far = left[m][k + 1];
      a[m][0] = pack_two<Half<kPrecision>>(near[0], near[1]);
      a[m][1] = pack_two<Half<kPrecision>>(near[2], near[3]);
      a[m][2] = pack_two<Half<kPrecision>>(far[0], far[1]);
      a[m][3] = pack_two<Half<kPrecision>>(far[2], far[3]);
    }
#pragma unroll
    for (unsigned n = 0; n < kN; n += 2) {
      if (8 * n >= width) break;
      std::uint32_t b[4];
      load_right<true>(b, right, stride, 8 * n, 8 * k);
#pragma unroll
      for (unsigned m = 0; m < kM; ++m)
        multiply_pair<Half<kPrecision>>(sums[m][n], sums[m][n + 1], a[m], b);
    }
  }
}
template <unsigned kM, unsigned kDepth, unsigned kN>
__device__ inline void multiply_scores(float (&sums)[kM][kN][4], const float (&left)[kM][kDepth][4],
                                       const float* right, unsigned stride, unsigned width) {
  const unsigned lane = threadIdx.x % 32, column = lane % 4 * 2;
#pragma unroll
  for (unsigned k = 0; k < kDepth; ++k) {
    for (unsigned holder = 0; holder < 4; ++holder) {  // of depths 8 k + 2 holder + {0, 1}
#pragma unroll
      for (unsigned e = 0; e < 2; ++e) {
        const float* const line = right + (8 * k + 2 * holder + e) * stride + column;
#pragma unroll
        for (unsigned m = 0; m < kM; ++m) {
          const float upper = __shfl_sync(~0u, left[m][k][e], lane / 4 * 4 + holder);
          const float lower = __shfl_sync(~0u, left[m][k][2 + e], lane / 4 * 4 + holder);
#pragma unroll
          for (unsigned n = 0; n < kN; ++n) {
            if (8 * n >= width) break;
            sums[m][n][0] = __fmaf_rn(upper, line[8 * n], sums[m][n][0]);
            sums[m][n][1] = __fmaf_rn(upper, line[8 * n + 1], sums[m][n][1]);
            sums[m][n][2] = __fmaf_rn(lower, line[8 * n], sums[m][n][2]);
            sums[m][n][3] = __fmaf_rn(lower, line[8 * n + 1], sums[m][n][3]);
          }
        }
      }
    }
  }
}

// ---- parts of the kernels -----------------------------------------------------------------------

// Sums over the four lanes that share a row of accumulators; the same bits in each.
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ inline void store_pair(float* to, float x, float y, unsigned count, bool pair) {
  if (pair && count >= 2) {
    *reinterpret_cast<float2*>(to) = make_float2(x, y);
  } else {
    if (count >= 1) to[0] = x;
    if (count >= 2) to[1] = y;
  }
}
template <Precision kPrecision>
__device__ inline void store_pair(Half<kPrecision>* to, float x, float y, unsigned count,
                                  bool pair) {
  const ushort2 two = two_halves<Half<kPrecision>>(x, y);
  if (pair && count >= 2) {
    *reinterpret_cast<ushort2*>(to) = two;
  } else {
    if (count >= 1) to[0].bits = two.x;
    if (count >= 2) to[1].bits = two.y;
  }
}

// Stores a warp's rows times factor[row]: `rows` rows and `width` columns of them exist.
template <class T, unsigned kM, unsigned kN>
__device__ inline void store_rows(const float (&sums)[kM][kN][4], const float (&factor)[kM][2],
                                  T* to, std::size_t ld, unsigned rows, unsigned width,
                                  bool pairs) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (unsigned m = 0; m < kM; ++m)
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const unsigned row = 16 * m + 8 * h + lane / 4;
#pragma unroll
      for (unsigned n = 0; n < kN; ++n) {
        const unsigned column = 8 * n + lane % 4 * 2;
        if (row < rows && column < width)
          store_pair(to + row * ld + column, sums[m][n][2 * h] * factor[m][h],
                     sums[m][n][2 * h + 1] * factor[m][h], width - column, pairs);
      }
    }
}

// A block walks over TilePairs, of which the next is on
// its way while one is used, if there is room for two.
template <class F, unsigned kFixed>
struct TilePairs {
  using T = typename F::Element;
  static constexpr std::size_t kFixedTiles = std::size_t{kFixed} * F::kRows * F::kStride;
  static constexpr std::size_t kTile = std::size_t{F::kColumns} * F::kStride;
  static constexpr std::size_t kRoom = 98 * 1024;
  static constexpr unsigned kStages = (kFixedTiles + 4 * kTile) * sizeof(T) <= kRoom ? 2 : 1;
  static constexpr std::size_t kBytes = (kFixedTiles + 2 * kStages * kTile) * sizeof(T);
  static_assert(kBytes <= kRoom);

  T* shared;
  unsigned width;  // of a head

  // Counts the columns of a tile that are not only zeros: a multiple of 16.
  __device__ unsigned used() const { return F::kWhole ? F::kWidth : (width + 15) / 16 * 16; }
  __device__ T* fixed(unsigned which) const { return shared + which * F::kRows * F::kStride; }
  __device__ T* first(unsigned tile) const {
    return shared + kFixedTiles + tile % kStages * 2 * kTile;
  }
  __device__ T* second(unsigned tile) const { return first(tile) + kTile; }

  __device__ void load_fixed(unsigned which, const Part<T>& from) const {
    load_tile<F::kRows, F::kWidth, F::kStride, F::kThreads>(fixed(which), from, used());
  }
  __device__ void load(unsigned tile, const Part<T>& to_first, const Part<T>& to_second) const {
    load_tile<F::kColumns, F::kWidth, F::kStride, F::kThreads>(first(tile), to_first, used());
    load_tile<F::kColumns, F::kWidth, F::kStride, F::kThreads>(second(tile), to_second, used());
    copy_async_commit();
  }
  // Calls load(tile) and use(tile) for all tiles from `begin` to `end`.
  template <class Load, class Use>
  __device__ void walk(unsigned begin, unsigned end, const Load& load_next, const Use& use) const {
    load_next(begin);
    for (unsigned tile = begin; tile < end; ++tile) {
      copy_async_wait<0>();
      __syncthreads();
      if (kStages == 2 && tile + 1 < end) load_next(tile + 1);
      use(tile);
      if (kStages == 1 && tile + 1 < end) {
        __syncthreads();
        load_next(tile + 1);
      }
    }
  }
};

// ---- launching ----------------------------------------------------------------------------------

// Registers, which hold the accumulators of scores and of results, bound the sizes, and for floats
// shared memory. With twice the rows a warp reads half as much of shared memory for a product.
template <class T, unsigned kWidth, bool kWhole>
struct AttentionForms {
  static constexpr unsigned kM = sizeof(T) * kWidth > 128 ? 1 : 2;
  static constexpr unsigned kColumns = sizeof(T) * kWidth > 256 ? 32 : 64;
  static constexpr unsigned kFewer = sizeof(T) == 2 ? 32 : kColumns;
  using Forward = AttentionForm<T, kWidth, kWhole, kM, kColumns>;
  using Queries = AttentionForm<T, kWidth, kWhole, kM, kM == 2 ? kFewer : kColumns>;
  using Keys = AttentionForm<T, kWidth, kWhole, kM, kFewer>;
};

template <class F, unsigned kFixed>
void launch_on(cudaStream_t stream, void (*kernel)(AttentionWork), const AttentionWork& work,
               std::uint32_t heads) {
  const AttentionShape& s = work.shape;
  const dim3 grid((s.positions + F::kRows - 1) / F::kRows, heads, s.sequences);
  launch(stream, grid, dim3(F::kThreads), TilePairs<F, kFixed>::kBytes, kernel, work);
}

// Calls run.operator()<F>() with the forms for the type and the width of a head.
template <class Run>
void with_forms(Precision type, const AttentionShape& s, const Run& run) {
  with_element(type, [&]<class T>() {
    if constexpr (sizeof(T) == 2) {
      if (s.head_width == 64) return run.template operator()<AttentionForms<T, 64, true>>();
      if (s.head_width == 128) return run.template operator()<AttentionForms<T, 128, true>>();
    }
    if (s.head_width <= 64) return run.template operator()<AttentionForms<T, 64, false>>();
    run.template operator()<AttentionForms<T, 128, false>>();
  });
}

// out and d_in: null where nothing is written there.
inline AttentionWork work_of(Precision type, const AttentionShape& s,
                             const HeadRows<const void>& in, void* out, const void* d_out,
                             const HeadRows<void>& d_in) {
  const std::size_t size = bytes_of(type), out_stride = std::size_t{s.heads} * s.head_width;
  // Whether all of these begin, and all strides go, by so many elements.
  const auto aligned = [&](std::size_t elements, std::initializer_list<const void*> from,
                           std::initializer_list<std::size_t> strides) {
    return s.head_width % elements == 0 &&
           std::ranges::all_of(from,
                               [&](const void* at) {
                                 return reinterpret_cast<std::uintptr_t>(at) % (elements * size) ==
                                        0;
                               }) &&
           std::ranges::all_of(strides, [&](std::size_t n) { return n % elements == 0; });
  };
  AttentionWork work{.shape = s,
                     .scale = 1 / std::sqrt(static_cast<float>(s.head_width)),
                     .chunks = aligned(16 / size, {in.queries, in.keys, in.values, d_out},
                                       {in.query_stride, in.key_value_stride}),
                     .pairs = aligned(2, {out, d_in.queries, d_in.keys, d_in.values},
                                      {d_in.query_stride, d_in.key_value_stride}),
                     .in = in,
                     .d_out = d_out,
                     .out = out,
                     .d_in = d_in,
                     .out_stride = out_stride,
                     .log_sums = nullptr,
                     .dots = nullptr};
  if (work.shape.window == 0 || work.shape.window > s.positions) work.shape.window = s.positions;
  return work;
}

inline bool is_empty(const AttentionShape& s) {
  return s.sequences == 0 || s.positions == 0 || s.heads == 0 || s.head_width == 0;
}

}  // namespace starling::kernels::cuda
