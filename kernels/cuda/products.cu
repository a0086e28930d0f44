#include <starling_shared.h>

#include <algorithm>

#include "core/base/check.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/layers.h"
#include "kernels/cuda/tile.h"

namespace starling::kernels::cuda {
namespace {

// A block makes a tile of kTile by kTile elements of the result, from tiles of both operands
// that arrive kStages - 1 steps ahead. Every element is one chain of sums in rising k.
constexpr unsigned kTile = 128;
constexpr unsigned kThreads = 256;
constexpr unsigned kStages = 3;
// Results pass through shared memory, half a tile at a time, so that memory sees whole lines.
constexpr unsigned kHalf = kTile / 2;
constexpr unsigned kResultStride = kTile + 8;

struct Work {
  Product product;
  bool a_chunks, b_chunks;  // Part::chunks
  bool whole;               // four neighbours of c, add and aux may be read and written as one
};

// ---- epilogue of a product ----------------------------------------------------------------------

__device__ void load_four_of(float (&x)[4], const float* at, unsigned count, bool whole) {
  if (whole) {
    const float4 four = *reinterpret_cast<const float4*>(at);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
    for (unsigned i = 0; i < 4; ++i) x[i] = i < count ? at[i] : 0;
  }
}
template <Precision kPrecision>
__device__ void load_four_of(float (&x)[4], const Half<kPrecision>* at, unsigned count,
                             bool whole) {
  if (whole) {
    const ushort4 four = *reinterpret_cast<const ushort4*>(at);
    const std::uint16_t bits[4] = {four.x, four.y, four.z, four.w};
    for (unsigned i = 0; i < 4; ++i) x[i] = widen(Half<kPrecision>{bits[i]});
  } else {
    for (unsigned i = 0; i < 4; ++i) x[i] = i < count ? widen(at[i]) : 0;
  }
}
__device__ void store_four_of(float* at, const float (&x)[4], unsigned count, bool whole) {
  if (whole) {
    *reinterpret_cast<float4*>(at) = make_float4(x[0], x[1], x[2], x[3]);
  } else {
    for (unsigned i = 0; i < count; ++i) at[i] = x[i];
  }
}
template <Precision kPrecision>
__device__ void store_four_of(Half<kPrecision>* at, const float (&x)[4], unsigned count,
                              bool whole) {
  using T = Half<kPrecision>;
  if (whole) {
    const ushort2 low = two_halves<T>(x[0], x[1]), high = two_halves<T>(x[2], x[3]);
    *reinterpret_cast<ushort4*>(at) = make_ushort4(low.x, low.y, high.x, high.y);
  } else {
    for (unsigned i = 0; i < count; ++i) at[i].bits = two_halves<T>(x[i], 0).x;
  }
}

// Ends four neighbours of a row, from the sum of products in x to c.
template <class Out>
__device__ void end(const Work& work, unsigned row, unsigned column, float (&x)[4]) {
  const Product& p = work.product;
  const unsigned count = min(4u, p.n - column);
  const bool whole = work.whole && count == 4;
  const std::size_t at = static_cast<std::size_t>(row) * p.ldc + column;
  float other[4];
  if (p.bias)
    for (unsigned i = 0; i < count; ++i) x[i] += p.bias[column + i];
  if (p.add) {
    const std::size_t add_at = static_cast<std::size_t>(row) * p.ldadd + column;
    load_four_of(other, static_cast<const Out*>(p.add) + add_at, count, whole);
    for (unsigned i = 0; i < 4; ++i) x[i] += other[i];
  }
  const bool backward =
      p.epilogue == Epilogue::kGeluBackward || p.epilogue == Epilogue::kReluBackward;
  if (backward) load_four_of(other, static_cast<const Out*>(p.aux) + at, count, whole);
  if (p.epilogue == Epilogue::kGelu) store_four_of(static_cast<Out*>(p.aux) + at, x, count, whole);
  for (unsigned i = 0; i < 4; ++i) {
    if (p.epilogue == Epilogue::kGelu) x[i] = gelu_of(x[i]);
    if (p.epilogue == Epilogue::kGeluBackward) x[i] *= gelu_slope(other[i]);
    if (p.epilogue == Epilogue::kRelu) x[i] = x[i] < 0 ? 0 : x[i];
    if (p.epilogue == Epilogue::kReluBackward) x[i] = other[i] > 0 ? x[i] : 0;
  }
  store_four_of(static_cast<Out*>(p.c) + at, x, count, whole);
}

// Ends them where operands are of T.
template <class T>
__device__ void end_as(const Work& work, unsigned row, unsigned column, float (&x)[4]) {
  const Precision out = work.product.out;
  if (out == Precision::kFp32) return end<float>(work, row, column, x);
  if constexpr (sizeof(T) == 2)
    end<T>(work, row, column, x);
  else if (out == Precision::kBf16)
    end<Bf16>(work, row, column, x);
  else
    end<F16>(work, row, column, x);
}

// ---- sums of products ---------------------------------------------------------------------------

// An Operand's tile lies in shared memory as [depth][row] if its lines in memory run
// along the rows (an a that is transposed, a b that is not), else as [row][depth].
template <class Math, bool kByDepth>
struct Operand {
  static constexpr unsigned kLines = kByDepth ? Math::kDepth : kTile;
  static constexpr unsigned kWidth = kByDepth ? kTile : Math::kDepth;
  static constexpr unsigned kStride = kWidth + kChunk<typename Math::Element>;
  static constexpr unsigned kElements = kLines * kStride;
};

// HalfMath has eight warps as 2 by 4; each has 64 rows and 32 columns of the tile.
template <class T>
struct HalfMath {
  using Element = T;
  static constexpr unsigned kDepth = 32;
  static constexpr unsigned kBlocks = 2;

  float sums[4][4][4] = {};

  template <bool kAByDepth, bool kBByDepth>
  __device__ void step(const T* a, const T* b) {
    const unsigned warp = threadIdx.x / 32, row = warp / 4 * 64, column = warp % 4 * 32;
#pragma unroll
    for (unsigned depth = 0; depth < kDepth; depth += 16) {
      std::uint32_t left[4][4];
#pragma unroll
      for (unsigned m = 0; m < 4; ++m)
        load_left<kAByDepth>(left[m], a, Operand<HalfMath, kAByDepth>::kStride, row + 16 * m,
                             depth);
#pragma unroll
      for (unsigned n = 0; n < 4; n += 2) {
        std::uint32_t right[4];
        load_right<kBByDepth>(right, b, Operand<HalfMath, kBByDepth>::kStride, column + 8 * n,
                              depth);
#pragma unroll
        for (unsigned m = 0; m < 4; ++m)
          multiply_pair<T>(sums[m][n], sums[m][n + 1], left[m], right);
      }
    }
  }
  // Puts half a tile of sums, from row 0 or from row kHalf of the tile.
  __device__ void put(unsigned half, float* results) const {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp / 4 != half) return;
    float* const to = results + lane / 4 * kResultStride + warp % 4 * 32 + lane % 4 * 2;
#pragma unroll
    for (unsigned m = 0; m < 4; ++m)
#pragma unroll
      for (unsigned n = 0; n < 4; ++n)
#pragma unroll
        for (unsigned e = 0; e < 4; e += 2)
          *reinterpret_cast<float2*>(to + (16 * m + 4 * e) * kResultStride + 8 * n) =
              make_float2(sums[m][n][e], sums[m][n][e + 1]);
  }
};

// Fp32Math has 16 by 16 threads; each has eight rows and eight
// columns of the tile, in pairs of neighbours that lie 32 apart.
struct Fp32Math {
  using Element = float;
  static constexpr unsigned kDepth = 16;
  static constexpr unsigned kBlocks = 1;

  float sums[8][8] = {};

  __device__ static unsigned place(unsigned thread, unsigned i) {
    return i / 2 * 32 + thread * 2 + i % 2;
  }
  // Loads eight rows of an operand at four depths.
  template <bool kByDepth>
  __device__ static void load(float (&x)[8][4], const float* tile, unsigned thread,
                              unsigned depth) {
    constexpr unsigned kStride = Operand<Fp32Math, kByDepth>::kStride;
    if constexpr (kByDepth) {
#pragma unroll
      for (unsigned k = 0; k < 4; ++k)
#pragma unroll
        for (unsigned i = 0; i < 8; i += 2) {
          const float2 two =
              *reinterpret_cast<const float2*>(tile + (depth + k) * kStride + place(thread, i));
          x[i][k] = two.x, x[i + 1][k] = two.y;
        }
    } else {
#pragma unroll
      for (unsigned i = 0; i < 8; ++i) {
        const float4 four =
            *reinterpret_cast<const float4*>(tile + place(thread, i) * kStride + depth);
        x[i][0] = four.x, x[i][1] = four.y, x[i][2] = four.z, x[i][3] = four.w;
      }
    }
  }
  template <bool kAByDepth, bool kBByDepth>
  __device__ void step(const float* a, const float* b) {
#pragma unroll
    for (unsigned depth = 0; depth < kDepth; depth += 4) {
      float left[8][4], right[8][4];
      load<kAByDepth>(left, a, threadIdx.x / 16, depth);
      load<kBByDepth>(right, b, threadIdx.x % 16, depth);
#pragma unroll
      for (unsigned k = 0; k < 4; ++k)
#pragma unroll
        for (unsigned i = 0; i < 8; ++i)
#pragma unroll
          for (unsigned j = 0; j < 8; ++j)
            sums[i][j] = __fmaf_rn(left[i][k], right[j][k], sums[i][j]);
    }
  }
  __device__ void put(unsigned half, float* results) const {
    static_assert(kHalf == 2 * 32);
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      if (i / 4 != half) continue;
      float* const to = results + place(threadIdx.x / 16, i % 4) * kResultStride;
#pragma unroll
      for (unsigned j = 0; j < 8; j += 2)
        *reinterpret_cast<float2*>(to + place(threadIdx.x % 16, j)) =
            make_float2(sums[i][j], sums[i][j + 1]);
    }
  }
};

// Returns the part of an operand from (row, depth) on.
template <class T>
__device__ Part<T> part_of(const void* matrix, std::size_t ld, bool by_depth, bool chunks,
                           unsigned row, unsigned rows, unsigned depth, unsigned depths) {
  const T* const at = static_cast<const T*>(matrix);
  if (by_depth) return {at + depth * ld + row, ld, depths - depth, rows - row, chunks};
  return {at + row * ld + depth, ld, rows - row, depths - depth, chunks};
}

// Finds the block's tile: eight rows of tiles are walked column by column,
// so that blocks that run at the same time share lines of both operands.
__device__ void place_of_tile(const Product& p, unsigned& row, unsigned& column) {
  constexpr unsigned kTogether = 8;
  const unsigned down = (p.m + kTile - 1) / kTile, across = (p.n + kTile - 1) / kTile;
  const unsigned first = blockIdx.x / (kTogether * across) * kTogether;
  const unsigned in_group = blockIdx.x % (kTogether * across), rows = min(kTogether, down - first);
  row = (first + in_group % rows) * kTile;
  column = in_group / rows * kTile;
}

template <class Math, bool kAByDepth, bool kBByDepth>
constexpr std::size_t shared_bytes() {
  constexpr std::size_t kOperands =
      kStages * sizeof(typename Math::Element) *
      (Operand<Math, kAByDepth>::kElements + Operand<Math, kBByDepth>::kElements);
  return std::max(kOperands, kHalf * kResultStride * sizeof(float));
}

template <class Math, bool kAByDepth, bool kBByDepth>
__global__ void __launch_bounds__(kThreads, Math::kBlocks) product(Work work) {
  using T = typename Math::Element;
  using A = Operand<Math, kAByDepth>;
  using B = Operand<Math, kBByDepth>;
  STARLING_DYNAMIC_SHARED(T, shared);
  const Product& p = work.product;
  unsigned row, column;
  place_of_tile(p, row, column);

  const auto load = [&](unsigned step) {
    T* const a = shared + step % kStages * (A::kElements + B::kElements);
    const unsigned depth = step * Math::kDepth;
    load_tile<A::kLines, A::kWidth, A::kStride, kThreads>(
        a, part_of<T>(p.a, p.lda, kAByDepth, work.a_chunks, row, p.m, depth, p.k));
    load_tile<B::kLines, B::kWidth, B::kStride, kThreads>(
        a + A::kElements,
        part_of<T>(p.b, p.ldb, kBByDepth, work.b_chunks, column, p.n, depth, p.k));
  };
  const unsigned steps = (p.k + Math::kDepth - 1) / Math::kDepth;
  for (unsigned step = 0; step + 1 < kStages; ++step) {
    if (step < steps) load(step);
    copy_async_commit();
  }
  Math math;
  for (unsigned step = 0; step < steps; ++step) {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    if (step + kStages - 1 < steps) load(step + kStages - 1);
    copy_async_commit();
    const T* const a = shared + step % kStages * (A::kElements + B::kElements);
    math.template step<kAByDepth, kBByDepth>(a, a + A::kElements);
  }

  float* const results = reinterpret_cast<float*>(shared);
#pragma unroll 1
  for (unsigned half = 0; half < 2; ++half) {
    __syncthreads();
    math.put(half, results);
    __syncthreads();
#pragma unroll 2
    for (unsigned i = threadIdx.x; i < kHalf * kTile / 4; i += kThreads) {
      const unsigned line = i / (kTile / 4), first = i % (kTile / 4) * 4;
      if (row + half * kHalf + line >= p.m || column + first >= p.n) continue;
      float x[4];
      load_four_of(x, results + line * kResultStride + first, 4, true);
      end_as<T>(work, row + half * kHalf + line, column + first, x);
    }
  }
}

template <class Out>
__global__ void __launch_bounds__(kThreads) finish_four(Work work) {
  const Product& p = work.product;
  const unsigned across = (p.n + 3) / 4;
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= static_cast<std::size_t>(across) * p.m) return;
  const unsigned row = static_cast<unsigned>(i / across);
  const unsigned column = static_cast<unsigned>(i % across) * 4;
  const unsigned count = min(4u, p.n - column);
  float x[4];
  load_four_of(x, static_cast<const Out*>(p.c) + static_cast<std::size_t>(row) * p.ldc + column,
               count, work.whole && count == 4);
  end<Out>(work, row, column, x);
}

// ---- launching ----------------------------------------------------------------------------------

bool aligned(const void* at, std::size_t ld, Precision type, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(at) % bytes == 0 && ld * bytes_of(type) % bytes == 0;
}

Work work_of(const Product& p) {
  const std::size_t four = 4 * bytes_of(p.out);
  return {.product = p,
          .a_chunks = aligned(p.a, p.lda, p.in, 16),
          .b_chunks = aligned(p.b, p.ldb, p.in, 16),
          .whole = aligned(p.c, p.ldc, p.out, four) && aligned(p.aux, 0, p.out, four) &&
                   aligned(p.add, p.add ? p.ldadd : 0, p.out, four)};
}

template <class Math, bool kAByDepth, bool kBByDepth>
void multiply_with(cudaStream_t stream, const Product& p) {
  const unsigned blocks = ((p.m + kTile - 1) / kTile) * ((p.n + kTile - 1) / kTile);
  launch(stream, dim3(blocks), dim3(kThreads), shared_bytes<Math, kAByDepth, kBByDepth>(),
         product<Math, kAByDepth, kBByDepth>, work_of(p));
}

template <class Math>
void multiply_with(cudaStream_t stream, const Product& p) {
  if (p.a_transposed && p.b_transposed) return multiply_with<Math, true, false>(stream, p);
  if (p.a_transposed) return multiply_with<Math, true, true>(stream, p);
  if (p.b_transposed) return multiply_with<Math, false, false>(stream, p);
  multiply_with<Math, false, true>(stream, p);
}

}  // namespace

void multiply(cudaStream_t stream, const Product& p) {
  STARLING_CHECK(p.in == Precision::kFp32 || p.out == Precision::kFp32 || p.in == p.out);
  if (p.m == 0 || p.n == 0) return;
  with_element(p.in, [&]<class T>() {
    if constexpr (sizeof(T) == 4)
      multiply_with<Fp32Math>(stream, p);
    else
      multiply_with<HalfMath<T>>(stream, p);
  });
}

void finish(cudaStream_t stream, const Product& p) {
  const std::size_t fours = static_cast<std::size_t>((p.n + 3) / 4) * p.m;
  if (fours == 0) return;
  const dim3 blocks(static_cast<unsigned>((fours + kThreads - 1) / kThreads));
  with_element(p.out, [&]<class Out>() {
    launch(stream, blocks, dim3(kThreads), 0, finish_four<Out>, work_of(p));
  });
}

}  // namespace starling::kernels::cuda
