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

// Blocks of kThreads threads with a pack each.
template <class T>
std::uint32_t blocks_of(std::size_t n) {
  constexpr std::size_t kPerBlock = std::size_t{kThreads} * kPack<T>;
  return static_cast<std::uint32_t>((n + kPerBlock - 1) / kPerBlock);
}

template <class F>
void launch_each(cudaStream_t stream, Precision type, std::size_t n, const void* a, const void* b,
                 void* y) {
  if (n == 0) return;
  with_packs(type, packs_fit(type, 16, {a, b, y}), [&]<class T, bool kAligned>() {
    launch(stream, blocks_of<T>(n), kThreads, 0, each<F, T, kAligned>, n, static_cast<const T*>(a),
           static_cast<const T*>(b), static_cast<T*>(y));
  });
}

__device__ float sigmoid(float x) {
  return 1 / (1 + expf(-x));
}

struct Swiglu {
  __device__ float operator()(float gate, float up) const { return gate * sigmoid(gate) * up; }
};

// dy and d_up may be one array: each element is read and written by one thread.
template <class T, bool kAligned>
__device__ void swiglu_backward_pack(std::uint32_t count, const T* gate, const T* up, const T* dy,
                                     T* d_gate, T* d_up, T* y) {
  const Pack<T> gates = load<kAligned>(gate, count), ups = load<kAligned>(up, count),
                outer = load<kAligned>(dy, count);
  Pack<T> to_gate, to_up, active;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    const float g = gates[i], s = sigmoid(g), silu = g * s;
    to_gate.put(i, outer[i] * ups[i] * (s * (1 + g * (1 - s))));
    to_up.put(i, outer[i] * silu);
    active.put(i, silu * ups[i]);
  }
  store<kAligned>(to_gate, d_gate, count);
  store<kAligned>(to_up, d_up, count);
  store<kAligned>(active, y, count);
}

template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_each(std::size_t n, const T* __restrict__ gate, const T* __restrict__ up,
                         const T* dy, T* __restrict__ d_gate, T* d_up, T* __restrict__ y) {
  constexpr std::size_t kCount = kPack<T>;
  const std::size_t at = (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (at >= n) return;
  const auto count = static_cast<std::uint32_t>(min(kCount, n - at));
  if (count == kCount)
    swiglu_backward_pack<T, kAligned>(count, gate + at, up + at, dy + at, d_gate + at, d_up + at,
                                      y + at);
  else
    swiglu_backward_pack<T, false>(count, gate + at, up + at, dy + at, d_gate + at, d_up + at,
                                   y + at);
}

template <class T, bool kAligned>
__device__ void multiply_pack(std::uint32_t count, float by, T* x) {
  const Pack<T> from = load<kAligned>(x, count);
  Pack<T> to;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) to.put(i, by * from[i]);
  store<kAligned>(to, x, count);
}

template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads) multiply_each(std::size_t n, float by, T* x) {
  constexpr std::size_t kCount = kPack<T>;
  const std::size_t at = (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (at >= n) return;
  const auto count = static_cast<std::uint32_t>(min(kCount, n - at));
  count == kCount ? multiply_pack<T, kAligned>(count, by, x + at)
                  : multiply_pack<T, false>(count, by, x + at);
}

}  // namespace

void swiglu(cudaStream_t stream, Precision type, std::size_t n, const void* gate, const void* up,
            void* y) {
  launch_each<Swiglu>(stream, type, n, gate, up, y);
}

void swiglu_backward(cudaStream_t stream, Precision type, std::size_t n, const void* gate,
                     const void* up, const void* dy, void* d_gate, void* d_up, void* y) {
  if (n == 0) return;
  with_packs(
      type, packs_fit(type, 16, {gate, up, dy, d_gate, d_up, y}), [&]<class T, bool kAligned>() {
        launch(stream, blocks_of<T>(n), kThreads, 0, swiglu_backward_each<T, kAligned>, n,
               static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<const T*>(dy),
               static_cast<T*>(d_gate), static_cast<T*>(d_up), static_cast<T*>(y));
      });
}

void multiply_by(cudaStream_t stream, Precision type, std::size_t n, float by, void* x) {
  if (n == 0 || by == 1) return;
  with_packs(type, packs_fit(type, 16, {x}), [&]<class T, bool kAligned>() {
    launch(stream, blocks_of<T>(n), kThreads, 0, multiply_each<T, kAligned>, n, by,
           static_cast<T*>(x));
  });
}

void relu_backward(cudaStream_t stream, Precision type, std::size_t n, const void* y,
                   const void* dy, void* dx) {
  launch_each<ReluBackward>(stream, type, n, y, dy, dx);
}

}  // namespace starling::kernels::cuda
