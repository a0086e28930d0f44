#include "core/base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/layers.h"
#include "kernels/cuda/packs.h"

namespace starling::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    narrow_all(std::size_t n, const float* __restrict__ from, T* __restrict__ to) {
  constexpr std::size_t kCount = kPack<T>;
  const std::size_t at = (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (at + kCount <= n) {
    float values[kCount];
    load_floats<kAligned>(from + at, kCount, values);
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) pack.put(i, values[i]);
    store<kAligned>(pack, to + at, kCount);
    return;
  }
  for (std::size_t i = at; i < n; ++i) narrow(from[i], to[i]);
}

template <class T>
void narrow_to(cudaStream_t stream, std::size_t n, const float* from, std::uint16_t* to) {
  constexpr std::size_t kBlock = kThreads * kPack<T>;
  const auto blocks = static_cast<std::uint32_t>((n + kBlock - 1) / kBlock);
  const bool aligned = packs_fit(Precision::kBf16, kBlock, {from, to});
  launch(stream, blocks, kThreads, 0, aligned ? narrow_all<T, true> : narrow_all<T, false>, n, from,
         reinterpret_cast<T*>(to));
}

}  // namespace

void to_halves(cudaStream_t stream, Precision type, std::size_t n, const float* from,
               std::uint16_t* to) {
  STARLING_CHECK(type != Precision::kFp32);
  if (n == 0) return;
  if (type == Precision::kBf16)
    narrow_to<Bf16>(stream, n, from, to);
  else
    narrow_to<F16>(stream, n, from, to);
}

}  // namespace starling::kernels::cuda
