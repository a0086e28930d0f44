#include "kernels/cuda/launch.h"
#include "kernels/cuda/layers.h"
#include "kernels/cuda/packs.h"

namespace starling::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    narrow_all(std::size_t n, const float* __restrict__ from, std::uint16_t* __restrict__ to) {
  constexpr std::size_t kCount = kPack<Bf16>;
  const std::size_t at = (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (at + kCount <= n) {
    float values[kCount];
    load_floats<kAligned>(from + at, kCount, values);
    Pack<Bf16> pack;
#pragma unroll
    for (int i = 0; i < kPack<Bf16>; ++i) pack.put(i, values[i]);
    store<kAligned>(pack, to + at, kCount);
    return;
  }
  for (std::size_t i = at; i < n; ++i) narrow(from[i], to[i]);
}

}  // namespace

void to_bf16(cudaStream_t stream, std::size_t n, const float* from, std::uint16_t* to) {
  if (n == 0) return;
  constexpr std::size_t kBlock = kThreads * kPack<Bf16>;
  const auto blocks = static_cast<std::uint32_t>((n + kBlock - 1) / kBlock);
  const bool aligned = packs_fit(Type::kBf16, kBlock, {from, to});
  launch(stream, blocks, kThreads, 0, aligned ? narrow_all<true> : narrow_all<false>, n, from, to);
}

}  // namespace starling::kernels::cuda
