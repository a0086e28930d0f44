// These kernels compute LayerNorm, and RMSNorm as that with means of 0: where `means` is null, and with it
// `bias`. One or more warps hold rows of up to kHeldMax elements in registers, and every byte is read and
// written once; wider rows are read again in each pass.

#include <starling_shared.h>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/packs.h"

namespace starling::kernels::cuda {
namespace {

constexpr float kLayerNormEpsilon = 1e-5f;
// Returns how many elements of a row a lane holds: GPT-2's 768 are one warp's.
// With more warps it holds fewer, as sums over warps need registers as well.
constexpr std::uint32_t lane_elements(bool one_warp) {
  return one_warp ? 24 : 16;
}
constexpr std::uint32_t kOneWarpMax = 32 * lane_elements(true);
constexpr std::uint32_t kBlockWarps = 12;
constexpr std::uint32_t kHeldMax = kBlockWarps * 32 * lane_elements(false);
constexpr std::uint32_t kForwardRows = 8;  // per block, where a row has one warp
constexpr std::uint32_t kWideThreads = 512;

// A Lane is the part of rows that a lane has: its pack i begins at column((i
// * warps + warp) * 32 + lane). `warp` counts within the row's warps.
template <class T, bool kOneWarp>
struct Lane {
  static constexpr int kPacks = static_cast<int>(lane_elements(kOneWarp)) / kPack<T>;
  std::uint32_t warps, warp, lane, width;

  __device__ std::uint32_t column(int i) const {
    return ((static_cast<std::uint32_t>(i) * warps + warp) * 32 + lane) * kPack<T>;
  }
  __device__ std::uint32_t count(int i) const { return pack_count<T>(column(i), width); }
};

constexpr std::uint32_t warps_of_row(std::uint32_t width) {
  return width <= kOneWarpMax ? 1 : divide_up(width, 32 * lane_elements(false));
}

// Adds a row's sum from its warps' sums, in their order. slots: one for each warp of the
// block, not used by the call before. With more warps than one, all of the block come here.
template <bool kOneWarp>
__device__ float row_sum(float value, std::uint32_t warps, float* slots) {
  value = warp_sum(value);
  if constexpr (kOneWarp) return value;
  const std::uint32_t warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) slots[warp] = value;
  __syncthreads();
  const float* const first = slots + warp / warps * warps;
  float sum = first[0];
  for (std::uint32_t w = 1; w < warps; ++w) sum += first[w];
  return sum;
}

// Makes two sums at once.
template <bool kOneWarp>
__device__ float2 row_sums(float a, float b, std::uint32_t warps, float2* slots) {
  float2 sums = make_float2(warp_sum(a), warp_sum(b));
  if constexpr (kOneWarp) return sums;
  const std::uint32_t warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) slots[warp] = sums;
  __syncthreads();
  const float2* const first = slots + warp / warps * warps;
  sums = first[0];
  for (std::uint32_t w = 1; w < warps; ++w) sums.x += first[w].x, sums.y += first[w].y;
  return sums;
}

__device__ float inverse_deviation(float variance, float epsilon) {
  return __fdiv_rn(1, __fsqrt_rn(variance + epsilon));
}

// Each row has `warps` warps of a block.
template <class T, bool kAligned, bool kOneWarp>
__global__ void __launch_bounds__(kBlockWarps * 32, 2)
    norm_held(Rows shape, std::uint32_t warps, float epsilon, const T* __restrict__ x,
              const float* __restrict__ gain, const float* __restrict__ bias, T* __restrict__ y,
              float* __restrict__ means, float* __restrict__ rstds) {
  constexpr int n = kPack<T>, kPacks = Lane<T, kOneWarp>::kPacks;
  __shared__ float slots[2][kBlockWarps];
  const std::uint32_t warp = threadIdx.x / 32;
  const std::uint32_t row = kOneWarp ? blockIdx.x * kForwardRows + warp : blockIdx.x;
  if (row >= shape.rows) return;  // all warps of a row, or none
  const Lane<T, kOneWarp> own{kOneWarp ? 1 : warps, kOneWarp ? 0 : warp, threadIdx.x % 32,
                              shape.width};
  const std::size_t begin = static_cast<std::size_t>(row) * shape.width;

  Pack<T> packs[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i)
    packs[i] = load<kAligned>(x + begin + own.column(i), own.count(i));
  const auto width = static_cast<float>(shape.width);
  float mean = 0;
  if (means) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i)
#pragma unroll
      for (int j = 0; j < n; ++j) sum += packs[i][j];
    mean = row_sum<kOneWarp>(sum, warps, slots[0]) / width;
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const std::uint32_t count = own.count(i);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float off = packs[i][j] - mean;
      if (has<kAligned>(count, j)) squares = __fmaf_rn(off, off, squares);
    }
  }
  const float rstd =
      inverse_deviation(row_sum<kOneWarp>(squares, warps, slots[1]) / width, epsilon);
  if (threadIdx.x % 32 == 0 && own.warp == 0) {
    if (means) means[row] = mean;
    rstds[row] = rstd;
  }

#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const std::uint32_t column = own.column(i), count = own.count(i);
    float g[n], b[n];
    load_floats<kAligned>(gain + column, count, g);
    load_floats<kAligned>(bias + column, bias ? count : 0, b);
    Pack<T> out;
#pragma unroll
    for (int j = 0; j < n; ++j) out.put(j, __fmaf_rn((packs[i][j] - mean) * rstd, g[j], b[j]));
    store<kAligned>(out, y + begin + column, count);
  }
}

// Sums over a block's threads; the same bits in each. slots: one for each warp, not used before.
__device__ float block_sum(float value, float* slots) {
  return row_sum<false>(value, kWideThreads / 32, slots);
}

template <class T>
__global__ void __launch_bounds__(kWideThreads)
    norm_wide(Rows shape, float epsilon, const T* __restrict__ x, const float* __restrict__ gain,
              const float* __restrict__ bias, T* __restrict__ y, float* __restrict__ means,
              float* __restrict__ rstds) {
  __shared__ float slots[2][kWideThreads / 32];
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * shape.width;
  const auto width = static_cast<float>(shape.width);
  float mean = 0, squares = 0;
  if (means) {
    float sum = 0;
    for (std::uint32_t c = threadIdx.x; c < shape.width; c += kWideThreads)
      sum += widen(x[begin + c]);
    mean = block_sum(sum, slots[0]) / width;
  }
  for (std::uint32_t c = threadIdx.x; c < shape.width; c += kWideThreads) {
    const float off = widen(x[begin + c]) - mean;
    squares = __fmaf_rn(off, off, squares);
  }
  const float rstd = inverse_deviation(block_sum(squares, slots[1]) / width, epsilon);
  if (threadIdx.x == 0) {
    if (means) means[blockIdx.x] = mean;
    rstds[blockIdx.x] = rstd;
  }
  for (std::uint32_t c = threadIdx.x; c < shape.width; c += kWideThreads)
    narrow(__fmaf_rn((widen(x[begin + c]) - mean) * rstd, gain[c], bias ? bias[c] : 0),
           y[begin + c]);
}

// Returns dx of one element; sum and along: the row's means of d = dy gain and of d * normed x.
__device__ float through_norm(float d, float normed, float rstd, float sum, float along,
                              float add) {
  return __fmaf_rn(rstd, __fmaf_rn(-along, normed, d - sum), add);
}

// Each block has one run of rows, and `warps` of its warps take one row at a time. A lane keeps
// the sums of its columns over its rows; at the end the teams of warps are added up in order.
template <class T, bool kAligned, bool kOneWarp>
__global__ void __launch_bounds__(kBlockWarps * 32, 1)
    norm_backward_held(Rows shape, std::uint32_t row_warps, const T* __restrict__ x,
                       const float* __restrict__ gain, const float* __restrict__ means,
                       const float* __restrict__ rstds, const T* __restrict__ dy, const T* add,
                       T* dx, float* __restrict__ partials) {
  constexpr int n = kPack<T>, kPacks = Lane<T, kOneWarp>::kPacks;
  __shared__ float2 slots[2][kBlockWarps];  // in turn: no warp is more than a row ahead
  STARLING_DYNAMIC_SHARED(float, columns);  // [2][teams][warps][lane's elements][32]
  const std::uint32_t warps = kOneWarp ? 1 : row_warps;
  const std::uint32_t teams = blockDim.x / 32 / warps, team = threadIdx.x / 32 / warps;
  const Lane<T, kOneWarp> own{warps, threadIdx.x / 32 % warps, threadIdx.x % 32, shape.width};
  const RowRun run = row_run(blockIdx.x, shape.rows);
  const float scale = 1 / static_cast<float>(shape.width);
  float to_gain[kPacks][n] = {}, to_bias[kPacks][n] = {};

  for (std::uint32_t first = run.begin, turn = 0; first < run.end; first += teams, turn ^= 1) {
    const std::uint32_t row = first + team;
    const bool present = row < run.end;  // a row's warps wait for the others even without a row
    if (kOneWarp && !present) break;
    const std::size_t begin = static_cast<std::size_t>(row) * shape.width;
    Pack<T> inputs[kPacks], outer[kPacks], adds[kPacks];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const std::uint32_t count = present ? own.count(i) : 0;
      inputs[i] = load<kAligned>(x + begin + own.column(i), count);
      outer[i] = load<kAligned>(dy + begin + own.column(i), count);
      if (add) adds[i] = load<kAligned>(add + begin + own.column(i), count);
    }
    const float mean = present && means ? means[row] : 0, rstd = present ? rstds[row] : 0;
    float sum = 0, along = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      float g[n];
      load_floats<kAligned>(gain + own.column(i), own.count(i), g);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const float normed = (inputs[i][j] - mean) * rstd, outward = outer[i][j];
        const float d = outward * g[j];
        sum += d;
        along = __fmaf_rn(d, normed, along);
        to_gain[i][j] = __fmaf_rn(outward, normed, to_gain[i][j]);
        to_bias[i][j] += outward;
      }
    }
    const float2 sums = row_sums<kOneWarp>(sum, along, warps, slots[turn]);
    sum = means ? sums.x * scale : 0;
    along = sums.y * scale;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      float g[n];
      load_floats<kAligned>(gain + own.column(i), own.count(i), g);
      Pack<T> out;
#pragma unroll
      for (int j = 0; j < n; ++j)
        out.put(j, through_norm(outer[i][j] * g[j], (inputs[i][j] - mean) * rstd, rstd, sum, along,
                                adds[i][j]));
      store<kAligned>(out, dx + begin + own.column(i), present ? own.count(i) : 0);
    }
  }

  const std::uint32_t team_floats = warps * 32 * lane_elements(kOneWarp);
#pragma unroll
  for (int i = 0; i < kPacks; ++i)
#pragma unroll
    for (int j = 0; j < n; ++j) {
      float* const to = columns + team * team_floats +
                        (static_cast<std::uint32_t>(i * n + j) * warps + own.warp) * 32 + own.lane;
      to[0] = to_gain[i][j];
      to[teams * team_floats] = to_bias[i][j];
    }
  __syncthreads();
  for (std::uint32_t c = threadIdx.x; c < shape.width; c += blockDim.x) {
    // Finds the place of column c, as Lane::column() has it.
    const std::uint32_t pack = c / n, lane = pack % 32, warp = pack / 32 % warps;
    const std::uint32_t element = pack / 32 / warps * n + c % n;
    const float* from = columns + (element * warps + warp) * 32 + lane;
    float* const to = partials + static_cast<std::size_t>(blockIdx.x) * shape.width + c;
    for (std::uint32_t k = 0; k < 2; ++k, from += teams * team_floats) {
      float total = from[0];
      for (std::uint32_t t = 1; t < teams; ++t) total += from[t * team_floats];
      to[k * partial_floats(shape.width)] = total;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kWideThreads)
    norm_backward_wide(Rows shape, const T* __restrict__ x, const float* __restrict__ gain,
                       const float* __restrict__ means, const float* __restrict__ rstds,
                       const T* __restrict__ dy, const T* add, T* dx) {
  __shared__ float slots[2][kWideThreads / 32];
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * shape.width;
  const float scale = 1 / static_cast<float>(shape.width);
  const float mean = means ? means[blockIdx.x] : 0, rstd = rstds[blockIdx.x];
  float sum = 0, along = 0;
  for (std::uint32_t c = threadIdx.x; c < shape.width; c += kWideThreads) {
    const float d = widen(dy[begin + c]) * gain[c];
    sum += d;
    along = __fmaf_rn(d, (widen(x[begin + c]) - mean) * rstd, along);
  }
  sum = means ? block_sum(sum, slots[0]) * scale : 0;
  along = block_sum(along, slots[1]) * scale;
  for (std::uint32_t c = threadIdx.x; c < shape.width; c += kWideThreads) {
    const float plus = add ? widen(add[begin + c]) : 0;
    narrow(through_norm(widen(dy[begin + c]) * gain[c], (widen(x[begin + c]) - mean) * rstd, rstd,
                        sum, along, plus),
           dx[begin + c]);
  }
}

void norm(cudaStream_t stream, Precision type, Rows shape, float epsilon, const void* x,
          const float* gain, const float* bias, void* y, float* mean, float* rstd) {
  if (shape.rows == 0 || shape.width == 0) return;
  const std::uint32_t warps = warps_of_row(shape.width);
  const bool aligned = packs_fit(type, shape.width, {x, gain, bias, y});
  with_packs(type, aligned, [&]<class T, bool kAligned>() {
    const T* const in = static_cast<const T*>(x);
    T* const out = static_cast<T*>(y);
    if (shape.width > kHeldMax)
      launch(stream, shape.rows, kWideThreads, 0, norm_wide<T>, shape, epsilon, in, gain, bias, out,
             mean, rstd);
    else if (warps > 1)
      launch(stream, shape.rows, warps * 32, 0, norm_held<T, kAligned, false>, shape, warps,
             epsilon, in, gain, bias, out, mean, rstd);
    else
      launch(stream, divide_up(shape.rows, kForwardRows), kForwardRows * 32, 0,
             norm_held<T, kAligned, true>, shape, warps, epsilon, in, gain, bias, out, mean, rstd);
  });
}

void norm_backward(cudaStream_t stream, Precision type, Rows shape, const void* x,
                   const float* gain, const float* mean, const float* rstd, const void* dy,
                   const void* add, void* dx, float* d_gain, float* d_bias, float* partials) {
  if (shape.width == 0) return;
  const std::uint32_t warps = warps_of_row(shape.width);
  const bool aligned = packs_fit(type, shape.width, {x, gain, dy, add, dx});
  with_packs(type, aligned, [&]<class T, bool kAligned>() {
    const T* const in = static_cast<const T*>(x);
    const T* const outer = static_cast<const T*>(dy);
    const T* const plus = static_cast<const T*>(add);
    T* const out = static_cast<T*>(dx);
    if (shape.width > kHeldMax) {
      norm_column_partials(stream, type, shape, x, mean, rstd, dy, partials);
      if (shape.rows > 0)
        launch(stream, shape.rows, kWideThreads, 0, norm_backward_wide<T>, shape, in, gain, mean,
               rstd, outer, plus, out);
      return;
    }
    const std::uint32_t block_warps = kBlockWarps / warps * warps;
    launch(
        stream, kRowRuns, block_warps * 32,
        sizeof(float) * 2 * block_warps * 32 * lane_elements(warps == 1),
        warps == 1 ? norm_backward_held<T, kAligned, true> : norm_backward_held<T, kAligned, false>,
        shape, warps, in, gain, mean, rstd, outer, plus, out, partials);
  });
  add_runs(stream, shape.width, partials, d_gain, d_bias);
}

}  // namespace

void layer_norm(cudaStream_t stream, Precision type, Rows shape, const void* x, const float* gain,
                const float* bias, void* y, float* mean, float* rstd) {
  norm(stream, type, shape, kLayerNormEpsilon, x, gain, bias, y, mean, rstd);
}

void layer_norm_backward(cudaStream_t stream, Precision type, Rows shape, const void* x,
                         const float* gain, const float* mean, const float* rstd, const void* dy,
                         const void* add, void* dx, float* d_gain, float* d_bias, float* partials) {
  norm_backward(stream, type, shape, x, gain, mean, rstd, dy, add, dx, d_gain, d_bias, partials);
}

void rms_norm(cudaStream_t stream, Precision type, Rows shape, float epsilon, const void* x,
              const float* gain, void* y, float* rstd) {
  norm(stream, type, shape, epsilon, x, gain, /*bias=*/nullptr, y, /*mean=*/nullptr, rstd);
}

void rms_norm_backward(cudaStream_t stream, Precision type, Rows shape, const void* x,
                       const float* gain, const float* rstd, const void* dy, const void* add,
                       void* dx, float* d_gain, float* partials) {
  norm_backward(stream, type, shape, x, gain, /*mean=*/nullptr, rstd, dy, add, dx, d_gain,
                /*d_bias=*/nullptr, partials);
}

}  // namespace starling::kernels::cuda
