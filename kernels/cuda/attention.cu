#include <starling_shared.h>

#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/layers.h"
#include "kernels/cuda/tile.h"

// Three kernels of one form. A block has a fixed run of rows of one head (queries, or keys in the pass
// that makes dK and dV) and walks over tiles of the other kind; a warp has 16 kM of the fixed rows
// and all columns of a tile. Scores live in the accumulators of mma.m16n8k16 (tile.h) and go from
// there into the second product without passing through memory. For floats the same accumulators
// are filled by fused multiply-adds, so that everything between two products is written once.
// Tiles are walked in rising order, and no two blocks write the same element.

namespace starling::kernels::cuda {
namespace {

constexpr float kLog2E = 1.44269504f;

// kWidth: as many elements of a head as there is room for. kM: 16 kM rows a warp. kColumns: of a tile
// that a block walks over.
template <class T, unsigned kWidth_, unsigned kM_, unsigned kColumns_>
struct Form {
  using Element = T;
  static constexpr unsigned kWidth = kWidth_, kM = kM_, kColumns = kColumns_;
  // Four tiles of 64 wide rows of floats would not fit into the 99 KiB that every device has.
  static constexpr unsigned kWarps = kWidth * sizeof(T) > 256 ? 2 : 4, kThreads = 32 * kWarps;
  static constexpr unsigned kRows = 16 * kM * kWarps;
  static constexpr unsigned kN = kColumns / 8;
  static constexpr unsigned kAcross = kWidth / 8;
  static constexpr unsigned kStride = kWidth + kChunk<T>;
};

// What all three kernels are told.
struct Work {
  AttentionShape shape;
  float scale;   // of scores: 1 / sqrt(head_width)
  bool chunks;   // Part::chunks, of every head's rows
  bool pairs;    // two neighbours of a result may be written as one
  const void* qkv;
  const void* d_out;
  void* to;  // out or d_qkv
  float* log_sums;
  const float* dots;
};

// The rows of one head, and where the block's fixed rows begin.
struct Place {
  std::size_t first_row, statistic;  // of the sequence; of log_sums and dots
  std::size_t ld, out_ld, head;      // elements between rows of qkv, of out; of a row before the head
};
__device__ Place place_of(const AttentionShape& s) {
  Place p;
  p.first_row = static_cast<std::size_t>(blockIdx.z) * s.positions;
  p.statistic = (static_cast<std::size_t>(blockIdx.z) * s.heads + blockIdx.y) * s.positions;
  p.out_ld = static_cast<std::size_t>(s.heads) * s.head_width;
  p.ld = 3 * p.out_ld;
  p.head = static_cast<std::size_t>(blockIdx.y) * s.head_width;
  return p;
}

// Rows of queries (0), keys (1) or values (2) from `row` on.
template <class T>
__device__ Part<T> part_of(const Work& w, const Place& p, unsigned which, unsigned row) {
  const T* const at = static_cast<const T*>(w.qkv) + (p.first_row + row) * p.ld +
                      which * p.out_ld + p.head;
  return {at, p.ld, w.shape.positions - row, w.shape.head_width, w.chunks};
}
template <class T>
__device__ Part<T> d_out_of(const Work& w, const Place& p, unsigned row) {
  const T* const at = static_cast<const T*>(w.d_out) + (p.first_row + row) * p.out_ld + p.head;
  return {at, p.out_ld, w.shape.positions - row, w.shape.head_width, w.chunks};
}

// ---- the two products of a warp -----------------------------------------------------------------

// sums[rows, columns] += left[rows, depth] right[columns, depth], both tiles in shared memory; depth
// is a multiple of 16.
template <unsigned kM, unsigned kN>
__device__ void multiply_rows(float (&sums)[kM][kN][4], const Bf16* left, const Bf16* right,
                              unsigned stride, unsigned depth) {
  for (unsigned d = 0; d < depth; d += 16) {
    std::uint32_t a[kM][4];
#pragma unroll
    for (unsigned m = 0; m < kM; ++m) load_left<false>(a[m], left, stride, 16 * m, d);
#pragma unroll
    for (unsigned n = 0; n < kN; n += 2) {
      std::uint32_t b[4];
      load_right<false>(b, right, stride, 8 * n, d);
#pragma unroll
      for (unsigned m = 0; m < kM; ++m) multiply_pair(sums[m][n], sums[m][n + 1], a[m], b);
    }
  }
}
template <unsigned kM, unsigned kN>
__device__ void multiply_rows(float (&sums)[kM][kN][4], const float* left, const float* right,
                              unsigned stride, unsigned depth) {
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
template <unsigned kM, unsigned kDepth, unsigned kN>
__device__ void multiply_scores(float (&sums)[kM][kN][4], const float (&left)[kM][kDepth][4],
                                const Bf16* right, unsigned stride, unsigned width) {
#pragma unroll
  for (unsigned k = 0; k < kDepth; k += 2) {
    std::uint32_t a[kM][4];
#pragma unroll
    for (unsigned m = 0; m < kM; ++m) {
      const auto &near = left[m][k], &far = left[m][k + 1];
      a[m][0] = pack_bf16(near[0], near[1]);
      a[m][1] = pack_bf16(near[2], near[3]);
      a[m][2] = pack_bf16(far[0], far[1]);
      a[m][3] = pack_bf16(far[2], far[3]);
    }
#pragma unroll
    for (unsigned n = 0; n < kN; n += 2) {
      if (8 * n >= width) break;
      std::uint32_t b[4];
      load_right<true>(b, right, stride, 8 * n, 8 * k);
#pragma unroll
      for (unsigned m = 0; m < kM; ++m) multiply_pair(sums[m][n], sums[m][n + 1], a[m], b);
    }
  }
}
template <unsigned kM, unsigned kDepth, unsigned kN>
__device__ void multiply_scores(float (&sums)[kM][kN][4], const float (&left)[kM][kDepth][4],
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

// Sum over the four lanes that share a row of accumulators; the same bits in each.
__device__ float row_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
__device__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ void store_two(float* to, float x, float y, unsigned count, bool pair) {
  if (pair && count >= 2) {
    *reinterpret_cast<float2*>(to) = make_float2(x, y);
  } else {
    if (count >= 1) to[0] = x;
    if (count >= 2) to[1] = y;
  }
}
__device__ void store_two(Bf16* to, float x, float y, unsigned count, bool pair) {
  const ushort2 two = two_bf16(x, y);
  if (pair && count >= 2) {
    *reinterpret_cast<ushort2*>(to) = two;
  } else {
    if (count >= 1) to[0] = two.x;
    if (count >= 2) to[1] = two.y;
  }
}

// A warp's rows times factor[row] to memory: `rows` rows and `width` columns of them are there.
template <class T, unsigned kM, unsigned kN>
__device__ void store_rows(const float (&sums)[kM][kN][4], const float (&factor)[kM][2], T* to,
                           std::size_t ld, unsigned rows, unsigned width, bool pairs) {
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
          store_two(to + row * ld + column, sums[m][n][2 * h] * factor[m][h],
                    sums[m][n][2 * h + 1] * factor[m][h], width - column, pairs);
      }
    }
}

// What a block walks over: pairs of tiles, of which the next is on its way while one is used, if there
// is room for two.
template <class F, unsigned kFixed>
struct Pairs {
  using T = typename F::Element;
  static constexpr std::size_t kFixedTiles = std::size_t{kFixed} * F::kRows * F::kStride;
  static constexpr std::size_t kTile = std::size_t{F::kColumns} * F::kStride;
  static constexpr std::size_t kRoom = 98 * 1024;
  static constexpr unsigned kStages = (kFixedTiles + 4 * kTile) * sizeof(T) <= kRoom ? 2 : 1;
  static constexpr std::size_t kBytes = (kFixedTiles + 2 * kStages * kTile) * sizeof(T);
  static_assert(kBytes <= kRoom);

  T* shared;
  unsigned used;  // columns of a tile, a multiple of 16

  __device__ T* fixed(unsigned which) const { return shared + which * F::kRows * F::kStride; }
  __device__ T* first(unsigned tile) const {
    return shared + kFixedTiles + tile % kStages * 2 * kTile;
  }
  __device__ T* second(unsigned tile) const { return first(tile) + kTile; }

  __device__ void load_fixed(unsigned which, const Part<T>& from) const {
    load_tile<F::kRows, F::kWidth, F::kStride, F::kThreads>(fixed(which), from, used);
  }
  __device__ void load(unsigned tile, const Part<T>& to_first, const Part<T>& to_second) const {
    load_tile<F::kColumns, F::kWidth, F::kStride, F::kThreads>(first(tile), to_first, used);
    load_tile<F::kColumns, F::kWidth, F::kStride, F::kThreads>(second(tile), to_second, used);
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

__device__ unsigned used_width(const Work& w) {
  return (w.shape.head_width + 15) / 16 * 16;
}

// ---- the kernels --------------------------------------------------------------------------------

template <class F>
__global__ void __launch_bounds__(F::kThreads, 2) forward(Work w) {
  using T = typename F::Element;
  STARLING_DYNAMIC_SHARED(T, shared);
  const Place place = place_of(w.shape);
  const Pairs<F, 1> pairs{shared, used_width(w)};
  const unsigned lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16 * F::kM;
  const unsigned begin = (gridDim.x - 1 - blockIdx.x) * F::kRows;  // the longest walks first
  const unsigned keys = min(begin + F::kRows, w.shape.positions);
  const float c = w.scale * kLog2E;

  float sums[F::kM][F::kAcross][4] = {};
  float top[F::kM][2], total[F::kM][2] = {};
  for (auto& two : top) two[0] = two[1] = -INFINITY;

  pairs.load_fixed(0, part_of<T>(w, place, 0, begin));
  pairs.walk(
      0, (keys + F::kColumns - 1) / F::kColumns,
      [&](unsigned tile) {
        const unsigned key = tile * F::kColumns;
        pairs.load(tile, part_of<T>(w, place, 1, key), part_of<T>(w, place, 2, key));
      },
      [&](unsigned tile) {
        const unsigned key = tile * F::kColumns;
        if (key > begin + warp_row + 16 * F::kM - 1) return;  // all of it is masked
        const bool diagonal = key + F::kColumns - 1 > begin + warp_row;
        float scores[F::kM][F::kN][4] = {};
        multiply_rows(scores, pairs.fixed(0) + warp_row * F::kStride, pairs.first(tile),
                      F::kStride, pairs.used);
#pragma unroll
        for (unsigned m = 0; m < F::kM; ++m)
#pragma unroll
          for (unsigned h = 0; h < 2; ++h) {
            const unsigned row = begin + warp_row + 16 * m + 8 * h + lane / 4;
            float highest = top[m][h];
#pragma unroll
            for (unsigned n = 0; n < F::kN; ++n)
#pragma unroll
              for (unsigned e = 0; e < 2; ++e) {
                float& score = scores[m][n][2 * h + e];
                if (diagonal && key + 8 * n + lane % 4 * 2 + e > row) score = -INFINITY;
                highest = fmaxf(highest, score);
              }
            // Every row sees the first key, so that its top is finite from the first tile on.
            highest = row_max(highest);
            const float shrink = exp2f((top[m][h] - highest) * c), offset = highest * c;
            top[m][h] = highest;
            float sum = 0;
#pragma unroll
            for (unsigned n = 0; n < F::kN; ++n)
#pragma unroll
              for (unsigned e = 0; e < 2; ++e) {
                float& score = scores[m][n][2 * h + e];
                score = exp2f(__fmaf_rn(score, c, -offset));
                sum += score;
              }
            total[m][h] = __fmaf_rn(total[m][h], shrink, sum);
#pragma unroll
            for (unsigned n = 0; n < F::kAcross; ++n)
#pragma unroll
              for (unsigned e = 0; e < 2; ++e) sums[m][n][2 * h + e] *= shrink;
          }
        multiply_scores(sums, scores, pairs.second(tile), F::kStride, pairs.used);
      });

  float inverse[F::kM][2];
  const unsigned rows = w.shape.positions - begin;  // that are there
#pragma unroll
  for (unsigned m = 0; m < F::kM; ++m)
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const float sum = row_sum(total[m][h]);
      inverse[m][h] = 1 / sum;
      const unsigned row = warp_row + 16 * m + 8 * h + lane / 4;
      if (row < rows && lane % 4 == 0)
        w.log_sums[place.statistic + begin + row] = __fmaf_rn(top[m][h], w.scale, logf(sum));
    }
  T* const to = static_cast<T*>(w.to) + (place.first_row + begin + warp_row) * place.out_ld + place.head;
  store_rows(sums, inverse, to, place.out_ld, rows > warp_row ? rows - warp_row : 0,
             w.shape.head_width, w.pairs);
}

// dQ: a block has queries and walks over keys and values.
template <class F>
__global__ void __launch_bounds__(F::kThreads, 2) backward_queries(Work w) {
  using T = typename F::Element;
  STARLING_DYNAMIC_SHARED(T, shared);
  const Place place = place_of(w.shape);
  const Pairs<F, 2> pairs{shared, used_width(w)};
  const unsigned lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16 * F::kM;
  const unsigned begin = (gridDim.x - 1 - blockIdx.x) * F::kRows;
  const unsigned keys = min(begin + F::kRows, w.shape.positions);
  const float c = w.scale * kLog2E;

  float sums[F::kM][F::kAcross][4] = {};
  float log_sum[F::kM][2], dot[F::kM][2];  // log_sum to base 2; infinite where no row is
  for (unsigned m = 0; m < F::kM; ++m)
    for (unsigned h = 0; h < 2; ++h) {
      const unsigned row = begin + warp_row + 16 * m + 8 * h + lane / 4;
      const bool there = row < w.shape.positions;
      log_sum[m][h] = there ? w.log_sums[place.statistic + row] * kLog2E : INFINITY;
      dot[m][h] = there ? w.dots[place.statistic + row] : 0;
    }

  pairs.load_fixed(0, part_of<T>(w, place, 0, begin));
  pairs.load_fixed(1, d_out_of<T>(w, place, begin));
  pairs.walk(
      0, (keys + F::kColumns - 1) / F::kColumns,
      [&](unsigned tile) {
        const unsigned key = tile * F::kColumns;
        pairs.load(tile, part_of<T>(w, place, 1, key), part_of<T>(w, place, 2, key));
      },
      [&](unsigned tile) {
        const unsigned key = tile * F::kColumns;
        if (key > begin + warp_row + 16 * F::kM - 1) return;  // all of it is masked
        const bool diagonal = key + F::kColumns - 1 > begin + warp_row;
        float scores[F::kM][F::kN][4] = {}, d_weights[F::kM][F::kN][4] = {};
        multiply_rows(scores, pairs.fixed(0) + warp_row * F::kStride, pairs.first(tile),
                      F::kStride, pairs.used);
        multiply_rows(d_weights, pairs.fixed(1) + warp_row * F::kStride, pairs.second(tile),
                      F::kStride, pairs.used);
#pragma unroll
        for (unsigned m = 0; m < F::kM; ++m)
#pragma unroll
          for (unsigned n = 0; n < F::kN; ++n)
#pragma unroll
            for (unsigned e = 0; e < 4; ++e) {
              const unsigned row = begin + warp_row + 16 * m + 4 * (e & 2) + lane / 4;
              float weight = exp2f(__fmaf_rn(scores[m][n][e], c, -log_sum[m][e / 2]));
              if (diagonal && key + 8 * n + lane % 4 * 2 + e % 2 > row) weight = 0;
              scores[m][n][e] = weight * (d_weights[m][n][e] - dot[m][e / 2]);
            }
        multiply_scores(sums, scores, pairs.first(tile), F::kStride, pairs.used);
      });

  float factor[F::kM][2];
  for (auto& two : factor) two[0] = two[1] = w.scale;
  const unsigned rows = w.shape.positions - begin;
  T* const to = static_cast<T*>(w.to) + (place.first_row + begin + warp_row) * place.ld + place.head;
  store_rows(sums, factor, to, place.ld, rows > warp_row ? rows - warp_row : 0, w.shape.head_width,
             w.pairs);
}

// dK and dV: a block has keys and values and walks over queries. Accumulators are transposed scores:
// rows are keys, columns queries.
template <class F>
__global__ void __launch_bounds__(F::kThreads, 2) backward_keys(Work w) {
  using T = typename F::Element;
  STARLING_DYNAMIC_SHARED(T, shared);
  __shared__ float statistics[2][2][F::kColumns];  // of a tile: log_sums to base 2, dots
  const Place place = place_of(w.shape);
  const Pairs<F, 2> pairs{shared, used_width(w)};
  const unsigned lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16 * F::kM;
  const unsigned begin = blockIdx.x * F::kRows, positions = w.shape.positions;
  const float c = w.scale * kLog2E;

  float d_keys[F::kM][F::kAcross][4] = {}, d_values[F::kM][F::kAcross][4] = {};
  pairs.load_fixed(0, part_of<T>(w, place, 1, begin));
  pairs.load_fixed(1, part_of<T>(w, place, 2, begin));
  pairs.walk(
      begin / F::kColumns, (positions + F::kColumns - 1) / F::kColumns,
      [&](unsigned tile) {
        const unsigned query = tile * F::kColumns;
        pairs.load(tile, part_of<T>(w, place, 0, query), d_out_of<T>(w, place, query));
        for (unsigned i = threadIdx.x; i < F::kColumns; i += F::kThreads) {
          const bool there = query + i < positions;
          statistics[tile % 2][0][i] =
              there ? w.log_sums[place.statistic + query + i] * kLog2E : INFINITY;
          statistics[tile % 2][1][i] = there ? w.dots[place.statistic + query + i] : 0;
        }
      },
      [&](unsigned tile) {
        const unsigned query = tile * F::kColumns;
        if (query + F::kColumns - 1 < begin + warp_row) return;  // all of it is masked
        const bool diagonal = query < begin + warp_row + 16 * F::kM - 1;
        float scores[F::kM][F::kN][4] = {}, d_scores[F::kM][F::kN][4] = {};
        multiply_rows(scores, pairs.fixed(0) + warp_row * F::kStride, pairs.first(tile),
                      F::kStride, pairs.used);
        multiply_rows(d_scores, pairs.fixed(1) + warp_row * F::kStride, pairs.second(tile),
                      F::kStride, pairs.used);
#pragma unroll
        for (unsigned n = 0; n < F::kN; ++n)
#pragma unroll
          for (unsigned e = 0; e < 2; ++e) {
            const unsigned column = 8 * n + lane % 4 * 2 + e;
            const float log_sum = statistics[tile % 2][0][column];
            const float dot = statistics[tile % 2][1][column];
#pragma unroll
            for (unsigned m = 0; m < F::kM; ++m)
#pragma unroll
              for (unsigned h = 0; h < 2; ++h) {
                const unsigned row = begin + warp_row + 16 * m + 8 * h + lane / 4;
                float &weight = scores[m][n][2 * h + e], &d_score = d_scores[m][n][2 * h + e];
                weight = exp2f(__fmaf_rn(weight, c, -log_sum));
                if (diagonal && query + column < row) weight = 0;
                d_score = weight * (d_score - dot);
              }
          }
        multiply_scores(d_values, scores, pairs.second(tile), F::kStride, pairs.used);
        multiply_scores(d_keys, d_scores, pairs.first(tile), F::kStride, pairs.used);
      });

  float one[F::kM][2], factor[F::kM][2];
  for (auto& two : one) two[0] = two[1] = 1;
  for (auto& two : factor) two[0] = two[1] = w.scale;
  const unsigned rows = positions - begin, mine = rows > warp_row ? rows - warp_row : 0;
  T* const to = static_cast<T*>(w.to) + (place.first_row + begin + warp_row) * place.ld +
                place.out_ld + place.head;
  store_rows(d_keys, factor, to, place.ld, mine, w.shape.head_width, w.pairs);
  store_rows(d_values, one, to + place.out_ld, place.ld, mine, w.shape.head_width, w.pairs);
}

constexpr unsigned kDotWarps = 8;

// One warp per row and head: the sum of out times d_out.
template <class T>
__global__ void __launch_bounds__(32 * kDotWarps)
    rows_dots(AttentionShape s, const T* out, const T* d_out, float* dots) {
  const std::size_t i = std::size_t{blockIdx.x} * kDotWarps + threadIdx.x / 32;
  const std::size_t row = i / s.heads, head = i % s.heads;
  if (row >= std::size_t{s.sequences} * s.positions) return;
  const unsigned lane = threadIdx.x % 32;
  float sum = 0;
  for (unsigned d = lane; d < s.head_width; d += 32)
    sum = __fmaf_rn(to_float(out[i * s.head_width + d]), to_float(d_out[i * s.head_width + d]), sum);
  for (unsigned apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
  const std::size_t sequence = row / s.positions, position = row % s.positions;
  if (lane == 0) dots[(sequence * s.heads + head) * s.positions + position] = sum;
}

// ---- launching ----------------------------------------------------------------------------------

bool aligned(const void* at, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
}

template <class F, unsigned kFixed>
void launch_on(cudaStream_t stream, void (*kernel)(Work), const Work& work) {
  const AttentionShape& s = work.shape;
  const dim3 grid((s.positions + F::kRows - 1) / F::kRows, s.heads, s.sequences);
  launch(stream, grid, dim3(F::kThreads), Pairs<F, kFixed>::kBytes, kernel, work);
}

Work work_of(Type type, const AttentionShape& s, const void* qkv, const void* d_out, void* to) {
  const std::size_t row = s.head_width * bytes_of(type);
  return {.shape = s,
          .scale = 1 / std::sqrt(static_cast<float>(s.head_width)),
          .chunks = row % 16 == 0 && aligned(qkv, 16) && aligned(d_out, 16),
          .pairs = s.head_width % 2 == 0 && aligned(to, 2 * bytes_of(type)),
          .qkv = qkv,
          .d_out = d_out,
          .to = to,
          .log_sums = nullptr,
          .dots = nullptr};
}

// Bounded by registers: accumulators of scores and of results are all held in them.
template <class T, unsigned kWidth>
struct Forms {
  static constexpr unsigned kColumns = sizeof(T) * kWidth > 256 ? 32 : 64;
  // With twice the rows a warp reads half as much of shared memory for each product.
  static constexpr unsigned kM = sizeof(T) * kWidth > 128 ? 1 : 2;
  using Queries = Form<T, kWidth, kM, kColumns>;
  using Keys = Form<T, kWidth, kM, sizeof(T) == 2 ? 32 : kColumns>;
};

template <class T, unsigned kWidth>
void backward(cudaStream_t stream, const Work& work) {
  using Queries = typename Forms<T, kWidth>::Queries;
  using Keys = typename Forms<T, kWidth>::Keys;
  launch_on<Keys, 2>(stream, backward_keys<Keys>, work);
  launch_on<Queries, 2>(stream, backward_queries<Queries>, work);
}

template <class T>
void backward(cudaStream_t stream, const Work& work, const void* out, float* dots) {
  const AttentionShape& s = work.shape;
  const std::size_t rows = std::size_t{s.sequences} * s.positions * s.heads;
  launch(stream, dim3(static_cast<unsigned>((rows + kDotWarps - 1) / kDotWarps)),
         dim3(32 * kDotWarps), 0, rows_dots<T>, s, static_cast<const T*>(out),
         static_cast<const T*>(work.d_out), dots);
  if (s.head_width <= 64)
    backward<T, 64>(stream, work);
  else
    backward<T, 128>(stream, work);
}

template <class T, unsigned kWidth>
void forward(cudaStream_t stream, const Work& work) {
  using F = typename Forms<T, kWidth>::Queries;
  launch_on<F, 1>(stream, forward<F>, work);
}

bool nothing(const AttentionShape& s) {
  return s.sequences == 0 || s.positions == 0 || s.heads == 0 || s.head_width == 0;
}

}  // namespace

void attention(cudaStream_t stream, Type type, const AttentionShape& shape, const void* qkv,
               void* out, float* log_sums) {
  if (nothing(shape)) return;
  Work work = work_of(type, shape, qkv, /*d_out=*/nullptr, out);
  work.log_sums = log_sums;
  const bool narrow = shape.head_width <= 64;
  if (type == Type::kF32)
    narrow ? forward<float, 64>(stream, work) : forward<float, 128>(stream, work);
  else
    narrow ? forward<Bf16, 64>(stream, work) : forward<Bf16, 128>(stream, work);
}

void attention_backward(cudaStream_t stream, Type type, const AttentionShape& shape,
                        const void* qkv, const void* out, const float* log_sums, const void* d_out,
                        void* d_qkv, float* dots) {
  if (nothing(shape)) return;
  Work work = work_of(type, shape, qkv, d_out, d_qkv);
  work.log_sums = const_cast<float*>(log_sums);
  work.dots = dots;
  if (type == Type::kF32)
    backward<float>(stream, work, out, dots);
  else
    backward<Bf16>(stream, work, out, dots);
}

}  // namespace starling::kernels::cuda
