#include <starling_shared.h>

#include <bit>

#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/packs.h"

namespace starling::kernels::cuda {
namespace {

// This kernel makes dQ: a block has queries and walks over keys and values.
template <class F>
__global__ void __launch_bounds__(F::kThreads, 2) backward_queries(AttentionWork w) {
  using T = typename F::Element;
  STARLING_DYNAMIC_SHARED(T, shared);
  const HeadPlace place = place_of(w.shape, blockIdx.y);
  const TilePairs<F, 2> pairs{shared, w.shape.head_width};
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

  pairs.load_fixed(0, queries_of<T>(w, place, begin));
  pairs.load_fixed(1, d_out_of<T>(w, place, begin));
  pairs.walk(
      first_key(w.shape, begin) / F::kColumns, (keys + F::kColumns - 1) / F::kColumns,
      [&](unsigned tile) {
        const unsigned key = tile * F::kColumns;
        pairs.load(tile, keys_of<T>(w, place, key), values_of<T>(w, place, key));
      },
      [&](unsigned tile) {
        const unsigned key = tile * F::kColumns;
        if (key > begin + warp_row + 16 * F::kM - 1) return;  // all of it is masked
        const bool some = hides_some<F>(w.shape, begin + warp_row, key);
        float scores[F::kM][F::kN][4] = {}, d_weights[F::kM][F::kN][4] = {};
        multiply_rows(scores, pairs.fixed(0) + warp_row * F::kStride, pairs.first(tile), F::kStride,
                      pairs.used());
        multiply_rows(d_weights, pairs.fixed(1) + warp_row * F::kStride, pairs.second(tile),
                      F::kStride, pairs.used());
#pragma unroll
        for (unsigned m = 0; m < F::kM; ++m)
#pragma unroll
          for (unsigned n = 0; n < F::kN; ++n)
#pragma unroll
            for (unsigned e = 0; e < 4; ++e) {
              const unsigned row = begin + warp_row + 16 * m + 4 * (e & 2) + lane / 4;
              float weight = exp2_of_normal(__fmaf_rn(scores[m][n][e], c, -log_sum[m][e / 2]));
              if (some && hides(w.shape, row, key + 8 * n + lane % 4 * 2 + e % 2)) weight = 0;
              scores[m][n][e] = weight * (d_weights[m][n][e] - dot[m][e / 2]);
            }
        multiply_scores(sums, scores, pairs.first(tile), F::kStride, pairs.used());
      });

  float factor[F::kM][2];
  for (auto& two : factor) two[0] = two[1] = w.scale;
  const unsigned rows = w.shape.positions - begin;
  const std::size_t ld = w.d_in.query_stride;
  T* const to =
      static_cast<T*>(w.d_in.queries) + (place.first_row + begin + warp_row) * ld + place.query;
  store_rows(sums, factor, to, ld, rows > warp_row ? rows - warp_row : 0, w.shape.head_width,
             w.pairs);
}

// This kernel makes dK and dV: a block has keys and values and walks over the queries of each head that
// shares them. Accumulators are transposed scores: rows are keys, columns queries.
template <class F>
__global__ void __launch_bounds__(F::kThreads, 2) backward_keys(AttentionWork w) {
  using T = typename F::Element;
  STARLING_DYNAMIC_SHARED(T, shared);
  __shared__ float statistics[2][2][F::kColumns];  // of a tile: log_sums to base 2, dots
  __shared__ unsigned head;                        // of the group; a register would be one too many
  const TilePairs<F, 2> pairs{shared, w.shape.head_width};
  const unsigned lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16 * F::kM;
  const unsigned begin = blockIdx.x * F::kRows, positions = w.shape.positions;
  const unsigned queries = min(positions, begin + F::kRows - 1 + w.shape.window);
  const float c = w.scale * kLog2E;

  float d_keys[F::kM][F::kAcross][4] = {}, d_values[F::kM][F::kAcross][4] = {};
  {
    const HeadPlace place = place_of(w.shape, blockIdx.y * w.shape.group);
    pairs.load_fixed(0, keys_of<T>(w, place, begin));
    pairs.load_fixed(1, values_of<T>(w, place, begin));
  }
  if (threadIdx.x == 0) head = 0;
  __syncthreads();
  while (head < w.shape.group) {
    pairs.walk(
        begin / F::kColumns, (queries + F::kColumns - 1) / F::kColumns,
        [&](unsigned tile) {
          const unsigned query = tile * F::kColumns;
          // Made anew for each tile, as registers are few.
          const HeadPlace place = place_of(w.shape, blockIdx.y * w.shape.group + head);
          pairs.load(tile, queries_of<T>(w, place, query), d_out_of<T>(w, place, query));
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
          const bool some = keys_hide_some<F>(w.shape, begin + warp_row, query);
          float scores[F::kM][F::kN][4] = {}, d_scores[F::kM][F::kN][4] = {};
          multiply_rows(scores, pairs.fixed(0) + warp_row * F::kStride, pairs.first(tile),
                        F::kStride, pairs.used());
          multiply_rows(d_scores, pairs.fixed(1) + warp_row * F::kStride, pairs.second(tile),
                        F::kStride, pairs.used());
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
                for (unsigned half = 0; half < 2; ++half) {
                  float &weight = scores[m][n][2 * half + e],
                        &d_score = d_scores[m][n][2 * half + e];
                  // exp2_of_normal() would cost registers that sm_120 does not have.
                  weight = exp2f(__fmaf_rn(weight, c, -log_sum));
                  if (some && hides(w.shape, query + column,
                                    begin + warp_row + 16 * m + 8 * half + lane / 4))
                    weight = 0;
                  d_score = weight * (d_score - dot);
                }
            }
          multiply_scores(d_values, scores, pairs.second(tile), F::kStride, pairs.used());
          multiply_scores(d_keys, d_scores, pairs.first(tile), F::kStride, pairs.used());
        });
    __syncthreads();  // until then tiles and `head` are read
    if (threadIdx.x == 0) ++head;
    __syncthreads();
  }

  float one[F::kM][2], factor[F::kM][2];
  for (auto& two : one) two[0] = two[1] = 1;
  for (auto& two : factor) two[0] = two[1] = w.scale;
  const unsigned rows = positions - begin, mine = rows > warp_row ? rows - warp_row : 0;
  const HeadPlace place = place_of(w.shape, blockIdx.y * w.shape.group);
  const std::size_t ld = w.d_in.key_value_stride;
  const std::size_t at = (place.first_row + begin + warp_row) * ld + place.key;
  store_rows(d_keys, factor, static_cast<T*>(w.d_in.keys) + at, ld, mine, w.shape.head_width,
             w.pairs);
  store_rows(d_values, one, static_cast<T*>(w.d_in.values) + at, ld, mine, w.shape.head_width,
             w.pairs);
}

constexpr unsigned kDotThreads = 256;

// Sums out times d_out for each row and head. `lanes`, a power of two up to 32, share a head: each has a
// pack of it.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kDotThreads)
    rows_dots(AttentionShape s, unsigned lanes, const T* out, const T* d_out, float* dots) {
  const unsigned lane = threadIdx.x % lanes, column = lane * kPack<T>;
  const std::size_t i = (std::size_t{blockIdx.x} * kDotThreads + threadIdx.x) / lanes;
  const std::size_t row = i / s.heads, head = i % s.heads;
  const bool there = row < std::size_t{s.sequences} * s.positions;
  const std::uint32_t count = there ? pack_count<T>(column, s.head_width) : 0;
  const Pack<T> a = load<kAligned>(out + i * s.head_width + column, count);
  const Pack<T> b = load<kAligned>(d_out + i * s.head_width + column, count);
  float sum = 0;
#pragma unroll
  for (int e = 0; e < kPack<T>; ++e) sum = __fmaf_rn(a[e], b[e], sum);
  for (unsigned apart = lanes / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
  const std::size_t sequence = row / s.positions, position = row % s.positions;
  if (there && lane == 0) dots[(sequence * s.heads + head) * s.positions + position] = sum;
}

void launch_dots(cudaStream_t stream, Precision type, const AttentionWork& work, const void* out,
                 float* dots) {
  const AttentionShape& s = work.shape;
  const std::size_t rows = std::size_t{s.sequences} * s.positions * s.heads;
  const bool aligned = packs_fit(type, s.head_width, {out, work.d_out});
  with_packs(type, aligned, [&]<class T, bool kAligned>() {
    const unsigned lanes = std::bit_ceil(divide_up(s.head_width, kPack<T>));
    const std::size_t blocks = (rows * lanes + kDotThreads - 1) / kDotThreads;
    launch(stream, dim3(static_cast<unsigned>(blocks)), dim3(kDotThreads), 0,
           rows_dots<T, kAligned>, s, lanes, static_cast<const T*>(out),
           static_cast<const T*>(work.d_out), dots);
  });
}

}  // namespace

void attention_backward(cudaStream_t stream, Precision type, const AttentionShape& shape,
                        const HeadRows<const void>& in, const void* out, const float* log_sums,
                        const void* d_out, const HeadRows<void>& d_in, float* dots) {
  if (is_empty(shape)) return;
  AttentionWork work = work_of(type, shape, in, /*out=*/nullptr, d_out, d_in);
  work.log_sums = const_cast<float*>(log_sums);
  work.dots = dots;
  launch_dots(stream, type, work, out, dots);
  with_forms(type, shape, [&]<class Forms>() {
    using Keys = typename Forms::Keys;
    using Queries = typename Forms::Queries;
    launch_on<Keys, 2>(stream, backward_keys<Keys>, work, shape.heads / shape.group);
    launch_on<Queries, 2>(stream, backward_queries<Queries>, work, shape.heads);
  });
}

}  // namespace starling::kernels::cuda
