#include "kernels/cuda/launch.h"
#include "kernels/cuda/packs.h"

namespace starling::kernels::cuda {
namespace {

constexpr std::uint32_t kWarps = 8;  // per block; in embed, each has a row

template <bool kAligned, int n>
__device__ void load_row(const float* from, std::uint32_t count, float (&values)[n]) {
  load_floats<kAligned>(from, count, values);
}
template <bool kAligned, int n, Precision kPrecision>
__device__ void load_row(const Half<kPrecision>* from, std::uint32_t count, float (&values)[n]) {
  const Pack<Half<kPrecision>> pack = load<kAligned>(from, count);
#pragma unroll
  for (int i = 0; i < n; ++i) values[i] = pack[i];
}

template <class T, class Table, bool kAligned>
__global__ void __launch_bounds__(kWarps * 32)
    embed_rows(Rows shape, std::uint32_t positions, const std::int32_t* __restrict__ tokens,
               const Table* __restrict__ wte, const Table* __restrict__ wpe, T* __restrict__ out) {
  constexpr int n = kPack<T>;
  const std::uint32_t row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= shape.rows) return;
  const std::size_t width = shape.width;
  const Table* const token = wte + static_cast<std::uint32_t>(tokens[row]) * width;
  const Table* const position = wpe ? wpe + row % positions * width : nullptr;
  T* const to = out + row * width;
#pragma unroll 4
  for (std::uint32_t c = threadIdx.x % 32 * n; c < shape.width; c += 32 * n) {
    const std::uint32_t count = pack_count<T>(c, shape.width);
    float a[n], b[n];
    load_row<kAligned>(token + c, count, a);
    load_row<kAligned>(position + c, position ? count : 0, b);
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < n; ++i) pack.put(i, a[i] + b[i]);
    store<kAligned>(pack, to + c, count);
  }
}

constexpr std::uint32_t kListWarps = 16;  // per block; a token each
constexpr std::uint32_t kPieceRows = 64;  // rows of a list that one warp adds
constexpr std::uint32_t kRowsAtOnce = 4;  // per warp: so many loads are under way

// Sets sum to the lane's columns of rows[0..n), added in rising order; n <= kPieceRows. All lanes
// come here. `columns` is d_out from the lane's first column on, of which `count` are the lane's.
template <class T, bool kAligned>
__device__ void add_piece(float (&sum)[kPack<T>], const std::uint32_t* rows, std::uint32_t n,
                          const T* columns, std::size_t width, std::uint32_t count) {
  const std::uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) sum[i] = 0;
  for (std::uint32_t first = 0; first < n; first += 32) {
    const std::uint32_t mine = first + lane < n ? rows[first + lane] : 0,
                        here = min(32u, n - first);
    for (std::uint32_t k = 0; k < here; k += kRowsAtOnce) {
      Pack<T> packs[kRowsAtOnce];
#pragma unroll
      for (std::uint32_t u = 0; u < kRowsAtOnce; ++u) {
        const std::uint32_t row = __shfl_sync(0xffffffffu, mine, static_cast<int>(k + u));
        packs[u] = load<kAligned>(columns + row * width, k + u < here ? count : 0);
      }
#pragma unroll
      for (std::uint32_t u = 0; u < kRowsAtOnce; ++u) {
        if (k + u >= here) break;
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) sum[i] += packs[u][i];
      }
    }
  }
}

// Makes 32 packs' columns of the gradients of kListWarps tokens, a warp each. All warps of
// the block share a list of more than one piece, a piece each at a time, and its sums are
// added in order. A block's tokens are far apart: frequent ones have neighbouring numbers.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kListWarps * 32, 2)
    add_token_rows(std::uint32_t width, TokenRows where, std::uint32_t first, std::uint32_t tokens,
                   const T* __restrict__ d_out, float* __restrict__ gradient) {
  constexpr std::uint32_t n = kPack<T>, kColumns = 32 * n;
  static_assert(kColumns <= kListWarps * 32);
  __shared__ float pieces[kListWarps][kColumns];
  __shared__ std::uint32_t lengths[kListWarps];
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::uint32_t begin = blockIdx.y * kColumns, column = begin + lane * n;
  const std::uint32_t count = pack_count<T>(column, width);
  const std::uint32_t own = warp * gridDim.x + blockIdx.x;
  const std::uint32_t length =
      own < tokens ? where.begins[first + own + 1] - where.begins[first + own] : 0;
  if (lane == 0) lengths[warp] = length;
  float sum[n];
  if (own < tokens && length <= kPieceRows) {
    add_piece<T, kAligned>(sum, where.rows + where.begins[first + own], length, d_out + column,
                           width, count);
    store_floats<kAligned>(sum, gradient + static_cast<std::size_t>(own) * width + column, count);
  }
  __syncthreads();
  for (std::uint32_t w = 0; w < kListWarps; ++w) {
    const std::uint32_t all = lengths[w];
    if (all <= kPieceRows) continue;
    const std::uint32_t token = w * gridDim.x + blockIdx.x;
    const std::uint32_t* const rows = where.rows + where.begins[first + token];
    float total = 0;  // of column `begin + threadIdx.x`
    for (std::uint32_t done = 0; done < all; done += kListWarps * kPieceRows) {
      const std::uint32_t from = min(all, done + warp * kPieceRows);
      add_piece<T, kAligned>(sum, rows + from, min(kPieceRows, all - from), d_out + column, width,
                             count);
#pragma unroll
      for (std::uint32_t i = 0; i < n; ++i) pieces[warp][lane * n + i] = sum[i];
      __syncthreads();
      const std::uint32_t present = min(kListWarps, divide_up(all - done, kPieceRows));
      if (threadIdx.x < kColumns)
        for (std::uint32_t p = 0; p < present; ++p) total += pieces[p][threadIdx.x];
      __syncthreads();
    }
    if (threadIdx.x < kColumns && begin + threadIdx.x < width)
      gradient[static_cast<std::size_t>(token) * width + begin + threadIdx.x] = total;
  }
}

constexpr std::uint32_t kPositionThreads = 256;

// Each thread makes one pack of [positions, width].
template <class T, bool kAligned>
__global__ void __launch_bounds__(kPositionThreads)
    add_sequences(std::uint32_t sequences, std::size_t elements, const T* __restrict__ d_out,
                  float* __restrict__ gradient) {
  constexpr std::uint32_t n = kPack<T>;
  const std::size_t at =
      (static_cast<std::size_t>(blockIdx.x) * kPositionThreads + threadIdx.x) * n;
  if (at >= elements) return;
  const auto count = static_cast<std::uint32_t>(min(elements - at, static_cast<std::size_t>(n)));
  float sum[n];
  const Pack<T> begin = load<kAligned>(d_out + at, count);
#pragma unroll
  for (std::uint32_t i = 0; i < n; ++i) sum[i] = begin[static_cast<int>(i)];
#pragma unroll 4
  for (std::uint32_t s = 1; s < sequences; ++s) {
    const Pack<T> pack = load<kAligned>(d_out + s * elements + at, count);
#pragma unroll
    for (std::uint32_t i = 0; i < n; ++i) sum[i] += pack[static_cast<int>(i)];
  }
  store_floats<kAligned>(sum, gradient + at, count);
}

}  // namespace

void embed(cudaStream_t stream, Precision type, Rows shape, std::uint32_t positions,
           const std::int32_t* tokens, Precision tables, const void* wte, const void* wpe,
           void* out) {
  if (shape.rows == 0) return;
  with_packs(type, packs_fit(type, shape.width, {wte, wpe, out}), [&]<class T, bool kAligned>() {
    const auto of = [&]<class Table>(const Table* table, const Table* added) {
      launch(stream, divide_up(shape.rows, kWarps), kWarps * 32, 0, embed_rows<T, Table, kAligned>,
             shape, positions, tokens, table, added, static_cast<T*>(out));
    };
    if (tables == Precision::kFp32)
      of(static_cast<const float*>(wte), static_cast<const float*>(wpe));
    else
      of(static_cast<const T*>(wte), static_cast<const T*>(wpe));
  });
}

void embed_backward(cudaStream_t stream, Precision type, std::uint32_t width, TokenRows where,
                    std::uint32_t first, std::uint32_t count, const void* d_out, float* gradient) {
  if (count == 0 || width == 0) return;
  with_packs(type, packs_fit(type, width, {d_out, gradient}), [&]<class T, bool kAligned>() {
    launch(stream, {divide_up(count, kListWarps), divide_up(width, 32 * kPack<T>)}, kListWarps * 32,
           0, add_token_rows<T, kAligned>, width, where, first, count, static_cast<const T*>(d_out),
           gradient);
  });
}

void position_gradient(cudaStream_t stream, Precision type, std::uint32_t sequences,
                       std::uint32_t positions, std::uint32_t width, const void* d_out,
                       float* gradient) {
  const std::size_t elements = static_cast<std::size_t>(positions) * width;
  if (elements == 0 || sequences == 0) return;
  with_packs(type, packs_fit(type, elements, {d_out, gradient}), [&]<class T, bool kAligned>() {
    constexpr std::size_t kBlock = kPositionThreads * kPack<T>;
    launch(stream, static_cast<std::uint32_t>((elements + kBlock - 1) / kBlock), kPositionThreads,
           0, add_sequences<T, kAligned>, sequences, elements, static_cast<const T*>(d_out),
           gradient);
  });
}

}  // namespace starling::kernels::cuda
