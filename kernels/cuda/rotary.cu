#include "kernels/cuda/launch.h"
#include "kernels/cuda/layers.h"
#include "kernels/cuda/packs.h"

namespace starling::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

// Each thread turns a pack of pairs of one head.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    rotate_packs(RotaryShape s, std::uint32_t packs, const float* __restrict__ cosines,
                 const float* __restrict__ sines, bool back, T* x) {
  constexpr int n = kPack<T>;
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::size_t head = i / packs;  // of all rows
  if (head >= static_cast<std::size_t>(s.rows) * s.heads) return;
  const std::uint32_t pair = static_cast<std::uint32_t>(i % packs) * n;
  const std::uint32_t count = pack_count<T>(pair, s.pairs);
  const std::size_t angle = head / s.heads % s.positions * s.pairs + pair;
  T* const low = x + head * 2 * s.pairs + pair;
  T* const high = low + s.pairs;
  const Pack<T> a = load<kAligned>(low, count), b = load<kAligned>(high, count);
  float cosine[n], sine[n];
  load_floats<kAligned>(cosines + angle, count, cosine);
  load_floats<kAligned>(sines + angle, count, sine);
  Pack<T> turned_low, turned_high;
#pragma unroll
  for (int j = 0; j < n; ++j) {
    const float by = back ? -sine[j] : sine[j];
    turned_low.put(j, __fmaf_rn(a[j], cosine[j], -(b[j] * by)));
    turned_high.put(j, __fmaf_rn(b[j], cosine[j], a[j] * by));
  }
  store<kAligned>(turned_low, low, count);
  store<kAligned>(turned_high, high, count);
}

}  // namespace

void rotate(cudaStream_t stream, Precision type, const RotaryShape& shape, const float* cosines,
            const float* sines, bool back, void* x) {
  const std::size_t heads = std::size_t{shape.rows} * shape.heads;
  if (heads == 0 || shape.pairs == 0) return;
  with_packs(type, packs_fit(type, shape.pairs, {x, cosines, sines}),
             [&]<class T, bool kAligned>() {
               const std::uint32_t packs = divide_up(shape.pairs, kPack<T>);
               launch(stream, static_cast<std::uint32_t>((heads * packs + kThreads - 1) / kThreads),
                      kThreads, 0, rotate_packs<T, kAligned>, shape, packs, cosines, sines, back,
                      static_cast<T*>(x));
             });
}

}  // namespace starling::kernels::cuda
