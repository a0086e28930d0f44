#include "kernels/cuda/launch.h"
#include "kernels/cuda/layers.h"
#include "kernels/cuda/packs.h"

namespace starling::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

struct ReluBackward {
  __device__ float operator()(float y, float dy) const { return y > 0 ? dy : 0; }
};

// y[i] = f(a[i], b[i]).
template <class F, class T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    each(std::size_t n, const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ y) {
  constexpr std::size_t kCount = kPack<T>;
  const std::size_t at = (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (at >= n) return;
  const auto count = static_cast<std::uint32_t>(min(kCount, n - at));
  const bool whole = count == kCount;
  const Pack<T> pa = whole ? load<kAligned>(a + at, count) : load<false>(a + at, count);
  const Pack<T> pb = whole ? load<kAligned>(b + at, count) : load<false>(b + at, count);
  Pack<T> result;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) result.put(i, F()(pa[i], pb[i]));
  if (whole)
    store<kAligned>(result, y + at, count);
  else
    store<false>(result, y + at, count);
}

template <class F>
void launch_each(cudaStream_t stream, Type type, std::size_t n, const void* a, const void* b,
                 void* y) {
  if (n == 0) return;
  with_packs(type, packs_fit(type, 16, {a, b, y}), [&]<class T, bool kAligned>() {
    constexpr std::size_t kPerBlock = std::size_t{kThreads} * kPack<T>;
    launch(stream, static_cast<std::uint32_t>((n + kPerBlock - 1) / kPerBlock), kThreads, 0,
           each<F, T, kAligned>, n, static_cast<const T*>(a), static_cast<const T*>(b),
           static_cast<T*>(y));
  });
}

}  // namespace

void relu_backward(cudaStream_t stream, Type type, std::size_t n, const void* y, const void* dy,
                   void* dx) {
  launch_each<ReluBackward>(stream, type, n, y, dy, dx);
}

}  // namespace starling::kernels::cuda
