#include <starling_shared.h>

#include "kernels/cuda/attention_parts.h"

namespace starling::kernels::cuda {
namespace {

template <class F>
__global__ void __launch_bounds__(F::kThreads, 2) forward(AttentionWork w) {
  using T = typename F::Element;
  STARLING_DYNAMIC_SHARED(T, shared);
  const HeadPlace place = place_of(w.shape, blockIdx.y);
  const TilePairs<F, 1> pairs{shared, w.shape.head_width};
  const unsigned lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16 * F::kM;
  const unsigned begin = (gridDim.x - 1 - blockIdx.x) * F::kRows;  // the longest walks first
  const unsigned keys = min(begin + F::kRows, w.shape.positions);
  const float c = w.scale * kLog2E;

  float sums[F::kM][F::kAcross][4] = {};
  float top[F::kM][2], total[F::kM][2] = {};
  for (auto& two : top) two[0] = two[1] = -INFINITY;

  pairs.load_fixed(0, queries_of<T>(w, place, begin));
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
        float scores[F::kM][F::kN][4] = {};
        multiply_rows(scores, pairs.fixed(0) + warp_row * F::kStride, pairs.first(tile), F::kStride,
                      pairs.used());
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
                if (some && hides(w.shape, row, key + 8 * n + lane % 4 * 2 + e)) score = -INFINITY;
                highest = fmaxf(highest, score);
              }
            highest = quad_max(highest);
            // With a window a row may have seen none until here: infinities have no difference.
            const float base = highest == -INFINITY ? 0 : highest;
            const float shrink = exp2_of_normal((top[m][h] - base) * c), offset = base * c;
            top[m][h] = highest;
            float sum = 0;
#pragma unroll
            for (unsigned n = 0; n < F::kN; ++n)
#pragma unroll
              for (unsigned e = 0; e < 2; ++e) {
                float& score = scores[m][n][2 * h + e];
                score = exp2_of_normal(__fmaf_rn(score, c, -offset));
                sum += score;
              }
            total[m][h] = __fmaf_rn(total[m][h], shrink, sum);
#pragma unroll
            for (unsigned n = 0; n < F::kAcross; ++n)
#pragma unroll
              for (unsigned e = 0; e < 2; ++e) sums[m][n][2 * h + e] *= shrink;
          }
        multiply_scores(sums, scores, pairs.second(tile), F::kStride, pairs.used());
      });

  float inverse[F::kM][2];
  const unsigned rows = w.shape.positions - begin;  // that are there
#pragma unroll
  for (unsigned m = 0; m < F::kM; ++m)
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const float sum = quad_sum(total[m][h]);
      inverse[m][h] = 1 / sum;
      const unsigned row = warp_row + 16 * m + 8 * h + lane / 4;
      if (row < rows && lane % 4 == 0)
        w.log_sums[place.statistic + begin + row] = __fmaf_rn(top[m][h], w.scale, logf(sum));
    }
  T* const to =
      static_cast<T*>(w.out) + (place.first_row + begin + warp_row) * w.out_stride + place.query;
  store_rows(sums, inverse, to, w.out_stride, rows > warp_row ? rows - warp_row : 0,
             w.shape.head_width, w.pairs);
}

}  // namespace

void attention(cudaStream_t stream, Precision type, const AttentionShape& shape,
               const HeadRows<const void>& in, void* out, float* log_sums) {
  if (is_empty(shape)) return;
  AttentionWork work = work_of(type, shape, in, out, /*d_out=*/nullptr, /*d_in=*/{});
  work.log_sums = log_sums;
  with_forms(type, shape, [&]<class Forms>() {
    using F = typename Forms::Forward;
    launch_on<F, 1>(stream, forward<F>, work, shape.heads);
  });
}

}  // namespace starling::kernels::cuda
