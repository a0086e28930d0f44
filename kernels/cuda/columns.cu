#include "kernels/cuda/columns.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/packs.h"

namespace starling::kernels::cuda {
namespace {

constexpr std::uint32_t kWarps = 8;
constexpr int kRowsAtOnce = 4;  // per warp: so many loads are under way

// The columns of a norm's gain need Normed besides dy.
template <class T>
struct Normed {
  const T* x;         // null: plain sums
  const float* mean;  // null: 0
  const float* rstd;
};

// Sums one run of rows over 32 packs' columns. Warp w adds rows w, w
// + kWarps, ... of the run; the warps' sums are added in their order.
template <class T, bool kAligned, bool kNormed>
__global__ void __launch_bounds__(kWarps * 32)
    run_sums(Rows shape, const T* __restrict__ x, Normed<T> normed, float* __restrict__ partials) {
  constexpr int n = kPack<T>;
  constexpr std::uint32_t kColumns = 32 * n;
  __shared__ float sums[kNormed ? 2 : 1][kWarps][kColumns];
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::uint32_t first = blockIdx.x * kColumns, column = first + lane * n;
  const std::uint32_t count = pack_count<T>(column, shape.width);
  const RowRun run = row_run(blockIdx.y, shape.rows);
  float plain[n] = {}, weighed[n] = {};
  for (std::uint32_t row = run.begin + warp; row < run.end; row += kWarps * kRowsAtOnce) {
    Pack<T> values[kRowsAtOnce], inputs[kRowsAtOnce];
#pragma unroll
    for (int u = 0; u < kRowsAtOnce; ++u) {
      const std::uint32_t r = row + u * kWarps;
      const std::size_t at = static_cast<std::size_t>(r) * shape.width + column;
      const std::uint32_t here = r < run.end ? count : 0;
      values[u] = load<kAligned>(x + at, here);
      if constexpr (kNormed) inputs[u] = load<kAligned>(normed.x + at, here);
    }
#pragma unroll
    for (int u = 0; u < kRowsAtOnce; ++u) {
      const std::uint32_t r = row + u * kWarps;
      if (r >= run.end) break;
      float mean = 0, rstd = 0;
      if constexpr (kNormed) mean = normed.mean ? normed.mean[r] : 0, rstd = normed.rstd[r];
#pragma unroll
      for (int i = 0; i < n; ++i) {
        plain[i] += values[u][i];
        if constexpr (kNormed)
          weighed[i] = __fmaf_rn(values[u][i], (inputs[u][i] - mean) * rstd, weighed[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < n; ++i) {
    sums[0][warp][lane * n + i] = plain[i];
    if constexpr (kNormed) sums[1][warp][lane * n + i] = weighed[i];
  }
  __syncthreads();
  for (std::uint32_t c = threadIdx.x; c < kColumns && first + c < shape.width; c += blockDim.x) {
    float* const to = partials + static_cast<std::size_t>(blockIdx.y) * shape.width + first + c;
    for (int k = 0; k < (kNormed ? 2 : 1); ++k) {
      float sum = sums[k][0][c];
      for (std::uint32_t w = 1; w < kWarps; ++w) sum += sums[k][w][c];
      // Normed: the gain's sums come first.
      to[kNormed && k == 0 ? partial_floats(shape.width) : 0] = sum;
    }
  }
}

__global__ void __launch_bounds__(128)
    combine_runs(std::uint32_t n, const float* __restrict__ partials, float* __restrict__ sums,
                 float* __restrict__ second) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (blockIdx.y == 1) partials += partial_floats(n), sums = second;
  float sum = partials[i];
#pragma unroll 64  // so many loads are under way
  for (std::uint32_t run = 1; run < kRowRuns; ++run)
    sum += partials[static_cast<std::size_t>(run) * n + i];
  sums[i] = sum;
}

template <class T>
dim3 run_grid(Rows shape) {
  return {divide_up(shape.width, 32 * kPack<T>), kRowRuns};
}

}  // namespace

void add_runs(cudaStream_t stream, std::uint32_t n, const float* partials, float* sums,
              float* second) {
  if (n == 0) return;
  constexpr std::uint32_t kThreads = 128;
  launch(stream, {divide_up(n, kThreads), second ? 2u : 1u}, kThreads, 0, combine_runs, n, partials,
         sums, second);
}

void norm_column_partials(cudaStream_t stream, Precision type, Rows shape, const void* x,
                          const float* mean, const float* rstd, const void* dy, float* partials) {
  with_packs(type, packs_fit(type, shape.width, {x, dy}), [&]<class T, bool kAligned>() {
    const Normed<T> normed{static_cast<const T*>(x), mean, rstd};
    launch(stream, run_grid<T>(shape), kWarps * 32, 0, run_sums<T, kAligned, true>, shape,
           static_cast<const T*>(dy), normed, partials);
  });
}

void column_sums(cudaStream_t stream, Precision type, Rows shape, const void* x, float* sums,
                 float* partials) {
  if (shape.width == 0) return;
  with_packs(type, packs_fit(type, shape.width, {x}), [&]<class T, bool kAligned>() {
    launch(stream, run_grid<T>(shape), kWarps * 32, 0, run_sums<T, kAligned, false>, shape,
           static_cast<const T*>(x), Normed<T>{}, partials);
  });
  add_runs(stream, shape.width, partials, sums);
}

}  // namespace starling::kernels::cuda
