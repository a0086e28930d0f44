// These kernels compute softmax with cross entropy over long rows. A row's block reads its logits
// once for the largest and the sum of exponentials; for the gradient, once more, from a cache.

#include <cfloat>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/packs.h"

namespace starling::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 512;
constexpr std::uint32_t kPacksAtOnce = 4;  // per thread: so many loads are under way

// Computes e^x for x <= 0 within some 3e-7 of it; infinities and NaN
// as expf. log2(e) is rounded, which matters only where e^x is small.
__device__ float exponential(float x) {
  return exp2_of_normal(x * 1.44269504f);
}

// Running is the sum of exp(x - top) over the values taken so far. It begins below every finite
// number, so that rows of -inf alone give a sum of 0; a NaN or +inf makes the sum a NaN.
struct Running {
  float top = -FLT_MAX, sum = 0;

  __device__ void raise(float to) {
    if (!(to > top)) return;
    sum *= exponential(top - to);
    top = to;
  }
};

template <class T>
__device__ void take(Running& running, const Pack<T>& pack) {
  constexpr int n = kPack<T>;
  float top = pack[0];
#pragma unroll
  for (int i = 1; i < n; ++i) top = fmaxf(top, pack[i]);
  running.raise(top);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < n; ++i) sum += exponential(pack[i] - running.top);
  running.sum += sum;
}

__device__ float warp_max(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

// Joins all threads' sums, in the order of threads; every thread gets the result.
__device__ Running block_total(Running running) {
  constexpr std::uint32_t kWarps = kThreads / 32;
  __shared__ float tops[kWarps], sums[kWarps];
  const std::uint32_t warp = threadIdx.x / 32;
  running.raise(warp_max(running.top));
  running.sum = warp_sum(running.sum);
  if (threadIdx.x % 32 == 0) tops[warp] = running.top, sums[warp] = running.sum;
  __syncthreads();
  Running total;
  for (std::uint32_t w = 0; w < kWarps; ++w) total.raise(tops[w]);
  for (std::uint32_t w = 0; w < kWarps; ++w)
    total.sum += sums[w] * exponential(tops[w] - total.top);
  return total;
}

template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    classify(std::uint32_t classes, std::uint32_t ld, T* logits,
             const std::int32_t* __restrict__ targets, const float* __restrict__ by,
             double* __restrict__ losses) {
  constexpr std::uint32_t n = kPack<T>, kStride = kThreads * kPacksAtOnce;
  T* const row = logits + static_cast<std::size_t>(blockIdx.x) * ld;
  const std::int32_t target = targets[blockIdx.x];
  if (target < 0) {  // none
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    for (std::uint32_t c = threadIdx.x; by != nullptr && c < ld; c += kThreads) narrow(0, row[c]);
    return;
  }
  const float wanted = widen(row[target]);  // before any thread writes the gradient
  const std::uint32_t whole = classes / n;  // packs all of whose columns count

  Running running;
  for (std::uint32_t first = threadIdx.x; first < whole; first += kStride) {
    Pack<T> packs[kPacksAtOnce];
#pragma unroll
    for (std::uint32_t u = 0; u < kPacksAtOnce; ++u) {
      const std::uint32_t pack = first + u * kThreads;
      packs[u] = load<kAligned>(row + pack * n, pack < whole ? n : 0);
    }
#pragma unroll
    for (std::uint32_t u = 0; u < kPacksAtOnce; ++u)
      if (first + u * kThreads < whole) take(running, packs[u]);
  }
  if (threadIdx.x < classes % n) {
    const float last = widen(row[whole * n + threadIdx.x]);
    running.raise(last);
    running.sum += exponential(last - running.top);
  }
  const Running total = block_total(running);
  if (threadIdx.x == 0)
    losses[blockIdx.x] = log(static_cast<double>(total.sum)) +
                         (static_cast<double>(total.top) - static_cast<double>(wanted));
  if (by == nullptr) return;

  const float scale = *by, factor = scale / total.sum;
  for (std::uint32_t first = threadIdx.x; first < whole; first += kStride) {
    Pack<T> packs[kPacksAtOnce];
#pragma unroll
    for (std::uint32_t u = 0; u < kPacksAtOnce; ++u) {
      const std::uint32_t pack = first + u * kThreads;
      packs[u] = load<kAligned>(row + pack * n, pack < whole ? n : 0);
    }
#pragma unroll
    for (std::uint32_t u = 0; u < kPacksAtOnce; ++u) {
      const std::uint32_t pack = first + u * kThreads;
      Pack<T> out;
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) out.put(i, exponential(packs[u][i] - total.top) * factor);
      store<kAligned>(out, row + pack * n, pack < whole ? n : 0);
    }
  }
  for (std::uint32_t c = whole * n + threadIdx.x; c < ld; c += kThreads)
    narrow(c < classes ? exponential(widen(row[c]) - total.top) * factor : 0, row[c]);
  __syncthreads();
  if (threadIdx.x == 0)
    narrow((exponential(wanted - total.top) / total.sum - 1) * scale, row[target]);
}

// Thread t adds losses t, t + kSumThreads, ... in rising order; then halves are added to halves.
constexpr std::uint32_t kSumThreads = 1024;

__global__ void __launch_bounds__(kSumThreads)
    add_losses(std::uint32_t rows, const double* __restrict__ losses, double* sum) {
  __shared__ double sums[kSumThreads];
  double own = 0;
  for (std::uint32_t r = threadIdx.x; r < rows; r += kSumThreads) own += losses[r];
  sums[threadIdx.x] = own;
  for (std::uint32_t half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *sum = sums[0];
}

}  // namespace

void cross_entropy(cudaStream_t stream, Precision type, std::uint32_t rows, std::uint32_t classes,
                   std::uint32_t ld, void* logits, const std::int32_t* targets, const float* scale,
                   double* losses) {
  if (rows == 0) return;
  with_packs(type, packs_fit(type, ld, {logits}), [&]<class T, bool kAligned>() {
    launch(stream, rows, kThreads, 0, classify<T, kAligned>, classes, ld, static_cast<T*>(logits),
           targets, scale, losses);
  });
}

void sum_losses(cudaStream_t stream, std::uint32_t rows, const double* losses, double* sum) {
  launch(stream, 1, kSumThreads, 0, add_losses, rows, losses, sum);
}

}  // namespace starling::kernels::cuda
