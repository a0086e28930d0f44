// Kernels on the imitation (tests/cuda/imitation): what threads of a grid do alone and together.

#include <cuda_runtime.h>
#include <doctest/doctest.h>
#include <starling_shared.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/orders.h"

namespace starling::kernels::cuda {

// The plugin's own, where it is linked.
__attribute__((weak)) void device_lost(const char* what, cudaError_t error) {
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

namespace {

using imitation::Order;
using imitation::OrderScope;

// ---- indices ------------------------------------------------------------------------------------

__global__ void write_indices(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned at = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
  unsigned* const mine = out + std::size_t{at} * 6;
  mine[0] = blockIdx.x, mine[1] = blockIdx.y, mine[2] = blockIdx.z;
  mine[3] = threadIdx.x, mine[4] = threadIdx.y, mine[5] = threadIdx.z;
}

TEST_CASE("imitation: every thread of a grid of three dimensions runs once, with its indices") {
  in_every_order([] {
    const dim3 grid(3, 2, 5), block(4, 3, 2);
    const std::size_t threads = 30 * 24;
    DeviceArray<unsigned> out(threads * 6);
    launch(nullptr, grid, block, 0, write_indices, out.data());
    const auto seen = out.host();
    std::set<std::vector<unsigned>> all;
    for (std::size_t i = 0; i < threads; ++i) {
      const std::vector<unsigned> one(&seen[i * 6], &seen[i * 6] + 6);
      CHECK(one[0] < grid.x);
      CHECK(one[1] < grid.y);
      CHECK(one[2] < grid.z);
      CHECK(one[3] < block.x);
      CHECK(one[4] < block.y);
      CHECK(one[5] < block.z);
      all.insert(one);
    }
    CHECK(all.size() == threads);
  });
}

// order[i] = the thread that ran as number i of the grid.
__global__ void queue_up(unsigned* next, unsigned* order) {
  order[atomicAdd(next, 1u)] = blockIdx.x * blockDim.x + threadIdx.x;
}
std::vector<unsigned> order_of(Order order, std::uint64_t seed) {
  const OrderScope scope(order, seed);
  DeviceArray<unsigned> next(1), all(300);
  next.zero();
  launch(nullptr, 5, 60, 0, queue_up, next.data(), all.data());
  return all.host();
}
TEST_CASE("imitation: blocks and threads run in the order that was chosen") {
  std::vector<unsigned> ascending(300);
  std::iota(ascending.begin(), ascending.end(), 0);
  CHECK(order_of(Order::kAscending, 0) == ascending);
  CHECK(order_of(Order::kDescending, 0) ==
        std::vector<unsigned>(ascending.rbegin(), ascending.rend()));
  std::set<std::vector<unsigned>> shuffled;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    auto order = order_of(Order::kShuffled, seed);
    CHECK(order == order_of(Order::kShuffled, seed));
    shuffled.insert(order);
    std::sort(order.begin(), order.end());
    CHECK(order == ascending);
  }
  CHECK(shuffled.size() == 5);
}

// ---- barriers, shared memory --------------------------------------------------------------------

// out[b][i] = in[b][n - 1 - i], through static or dynamic shared memory.
__global__ void turn_round_static(const int* in, int* out) {
  __shared__ int tile[128];
  tile[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
__global__ void turn_round_dynamic(const int* in, int* out, bool barrier) {
  STARLING_DYNAMIC_SHARED(int, tile);
  tile[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  if (barrier) __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

std::vector<int> numbers(std::size_t n) {
  std::vector<int> all(n);
  std::iota(all.begin(), all.end(), 1);
  return all;
}

TEST_CASE("imitation: shared memory and barriers, in any order of threads") {
  in_every_order([] {
    for (const unsigned width : {1u, 31u, 96u, 128u}) {
      const unsigned blocks = 5;
      const auto in = numbers(blocks * width);
      auto turned = in;
      for (unsigned b = 0; b < blocks; ++b)
        std::reverse(turned.begin() + b * width, turned.begin() + (b + 1) * width);
      const DeviceArray<int> from(in);
      DeviceArray<int> to(in.size());
      launch(nullptr, blocks, width, 0, turn_round_static, from.data(), to.data());
      CHECK(to.host() == turned);
      DeviceArray<int> again(in.size());
      launch(nullptr, blocks, width, width * sizeof(int), turn_round_dynamic, from.data(),
             again.data(), true);
      CHECK(again.host() == turned);
    }
  });
}

// Goal: orders are what shows a missing barrier. With the thread sanitizer it is a report, see
// imitation_errors_test.cpp.
TEST_CASE("imitation: a kernel that lacks a barrier gives other results in another order" *
          doctest::skip(imitation::finds_races())) {
  const auto in = numbers(64);
  const DeviceArray<int> from(in);
  std::set<std::vector<int>> results;
  in_every_order([&] {
    DeviceArray<int> to(in.size());
    launch(nullptr, 1, 64, 64 * sizeof(int), turn_round_dynamic, from.data(), to.data(), false);
    results.insert(to.host());
  });
  CHECK(results.size() >= 3);
}

__global__ void read_unwritten(unsigned* out) {
  STARLING_DYNAMIC_SHARED(unsigned, words);
  out[blockIdx.x] = words[3];
  words[3] = 7;
}
TEST_CASE("imitation: shared memory begins as no zeros, and not as the last block left it") {
  DeviceArray<unsigned> out(2);
  launch(nullptr, 2, 1, 16, read_unwritten, out.data());
  CHECK(out.host() == std::vector<unsigned>{0xa5a5a5a5, 0xa5a5a5a5});
}

// Threads from `stays` on return before the first barrier; the others pass `barriers` of them.
__global__ void some_return(unsigned stays, unsigned barriers, unsigned* counts) {
  __shared__ unsigned rounds;
  if (threadIdx.x == 0) rounds = 0;
  if (threadIdx.x >= stays) return;
  for (unsigned i = 0; i < barriers; ++i) {
    __syncthreads();
    if (threadIdx.x == i % stays) ++rounds;
    __syncthreads();
    counts[threadIdx.x] += rounds;
  }
}
TEST_CASE("imitation: barriers wait for those who have not returned") {
  in_every_order([] {
    for (const unsigned stays : {1u, 40u, 64u, 200u}) {
      DeviceArray<unsigned> counts(200);
      counts.zero();
      launch(nullptr, 1, 200, 0, some_return, stays, 5u, counts.data());
      std::vector<unsigned> wanted(200);
      std::fill_n(wanted.begin(), stays, 1 + 2 + 3 + 4 + 5);
      CHECK(counts.host() == wanted);
    }
  });
}

// A block's sum as kernels make it: shuffles, shared memory, a barrier.
__global__ void block_sums(const int* in, int* sums) {
  __shared__ int of_warps[32];
  int sum = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int by = 16; by != 0; by /= 2) sum += __shfl_down_sync(0xffffffff, sum, by);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int all = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) all += of_warps[w];
  sums[blockIdx.x] = all;
}
TEST_CASE("imitation: blocks of 1024 threads") {
  in_every_order([] {
    const auto in = numbers(3 * 1024);
    const DeviceArray<int> from(in);
    DeviceArray<int> sums(3);
    launch(nullptr, 3, 1024, 0, block_sums, from.data(), sums.data());
    const auto got = sums.host();
    for (int b = 0; b < 3; ++b)
      CHECK(got[b] == std::accumulate(in.begin() + b * 1024, in.begin() + (b + 1) * 1024, 0));
  });
}

// ---- warps --------------------------------------------------------------------------------------

enum class Kind { kIndex, kUp, kDown, kXor };
template <class T>
__global__ void shuffle(Kind kind, int by, int width, unsigned mask, T* out) {
  const unsigned lane = threadIdx.x % 32;
  if ((mask >> lane & 1) == 0) return;
  const T value = static_cast<T>(100 + threadIdx.x);
  T& mine = out[threadIdx.x];
  switch (kind) {
    case Kind::kIndex:
      mine = __shfl_sync(mask, value, by, width);
      break;
    case Kind::kUp:
      mine = __shfl_up_sync(mask, value, static_cast<unsigned>(by), width);
      break;
    case Kind::kDown:
      mine = __shfl_down_sync(mask, value, static_cast<unsigned>(by), width);
      break;
    case Kind::kXor:
      mine = __shfl_xor_sync(mask, value, by, width);
      break;
  }
}

// CUDA C++ Programming Guide, "Warp Shuffle Functions": by segments of `width` lanes.
int source_of(Kind kind, int lane, int by, int width) {
  const int segment = lane / width * width, in_segment = lane % width;
  switch (kind) {
    case Kind::kIndex:
      return segment + by % width;
    case Kind::kUp:
      return in_segment - by < 0 ? lane : lane - by;
    case Kind::kDown:
      return in_segment + by >= width ? lane : lane + by;
    case Kind::kXor: {  // earlier segments can be read, later ones cannot
      const int from = lane ^ by;
      return from >= segment + width ? lane : from;
    }
  }
  return lane;
}

template <class T>
void check_shuffles() {
  for (const Kind kind : {Kind::kIndex, Kind::kUp, Kind::kDown, Kind::kXor})
    for (const int width : {2, 8, 32})
      for (const int by : {0, 1, 3, 5, 16, 31}) {
        CAPTURE(static_cast<int>(kind));
        CAPTURE(width);
        CAPTURE(by);
        DeviceArray<T> out(64);
        launch(nullptr, 1, 64, 0, shuffle<T>, kind, by, width, 0xffffffffu, out.data());
        std::vector<T> wanted(64);
        for (int i = 0; i < 64; ++i)
          wanted[i] = static_cast<T>(100 + i / 32 * 32 + source_of(kind, i % 32, by, width));
        CHECK(out.host() == wanted);
      }
}
TEST_CASE("imitation: shuffles of every kind, type and width") {
  in_every_order([] {
    check_shuffles<float>();
    check_shuffles<unsigned long long>();
  });
  check_shuffles<int>();
  check_shuffles<double>();
}
TEST_CASE("imitation: shuffles of some lanes, while others are elsewhere") {
  in_every_order([] {
    DeviceArray<int> out(32);
    out.zero();
    launch(nullptr, 1, 32, 0, shuffle<int>, Kind::kXor, 1, 32, 0x0ff0f00fu, out.data());
    const auto got = out.host();
    for (int i = 0; i < 32; ++i) CHECK(got[i] == ((0x0ff0f00fu >> i & 1) != 0 ? 100 + (i ^ 1) : 0));
  });
}

struct Votes {
  unsigned ballot, any, all, match, same, sum, low, high, bits;
  int signed_sum, signed_low, whole;
  unsigned long long wide;
};
__global__ void vote(Votes* out) {
  const unsigned lane = threadIdx.x, all = 0xffffffff;
  Votes v;
  v.ballot = __ballot_sync(all, lane % 3 == 0);
  v.any = static_cast<unsigned>(__any_sync(all, lane == 40) * 2 + __any_sync(all, lane == 9));
  v.all = static_cast<unsigned>(__all_sync(all, lane < 31) * 2 + __all_sync(all, lane < 32));
  v.match = __match_any_sync(all, lane / 5);
  v.wide = __match_any_sync(all, (1ull << 40) * (lane % 2));
  v.same = __match_all_sync(all, 1.5f, &v.whole);
  int none = 1;
  v.same += __match_all_sync(all, lane, &none) + static_cast<unsigned>(none);
  v.sum = __reduce_add_sync(all, 0x10000000u + lane);
  v.low = __reduce_min_sync(all, 100u - lane);
  v.high = __reduce_max_sync(all, 100u - lane);
  v.bits = __reduce_or_sync(all, 1u << lane) & __reduce_and_sync(all, ~0u << (lane / 16)) &
           __reduce_xor_sync(all, 3u << (lane % 31));
  v.signed_sum = __reduce_add_sync(all, -static_cast<int>(lane));
  v.signed_low = __reduce_min_sync(all, -static_cast<int>(lane));
  out[lane] = v;
}
TEST_CASE("imitation: votes, matches and reductions of a warp") {
  in_every_order([] {
    DeviceArray<Votes> out(32);
    launch(nullptr, 1, 32, 0, vote, out.data());
    const auto all = out.host();
    unsigned thirds = 0, xors = 0;
    for (unsigned i = 0; i < 32; ++i) {
      if (i % 3 == 0) thirds |= 1u << i;
      xors ^= 3u << (i % 31);
    }
    for (unsigned i = 0; i < 32; ++i) {
      CAPTURE(i);
      const Votes& v = all[i];
      CHECK(v.ballot == thirds);
      CHECK(v.any == 1);
      CHECK(v.all == 1);
      CHECK(v.match == (31u << (i / 5 * 5)));
      CHECK(v.wide == (0x55555555u << (i % 2)));
      CHECK(v.same == 0xffffffff);
      CHECK(v.whole == 1);
      CHECK(v.sum == 31u * 32 / 2);  // wraps round
      CHECK(v.low == 69);
      CHECK(v.high == 100);
      CHECK(v.bits == (0xfffffffeu & xors));
      CHECK(v.signed_sum == -31 * 32 / 2);
      CHECK(v.signed_low == -31);
    }
  });
}

// Halves of a warp that go separate ways and meet again.
__global__ void part_and_meet(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int value = lane;
  if (lane < 16) {
    for (int i = 0; i < 3; ++i) value += __shfl_xor_sync(0x0000ffffu, value, 1);
  } else {
    value = static_cast<int>(__ballot_sync(0xffff0000u, lane % 2));
  }
  __syncwarp();
  out[lane] = __shfl_sync(0xffffffffu, value, lane ^ 16);
}
TEST_CASE("imitation: parts of a warp meet among themselves") {
  in_every_order([] {
    DeviceArray<int> out(32);
    launch(nullptr, 1, 32, 0, part_and_meet, out.data());
    const auto got = out.host();
    for (int i = 0; i < 16; ++i) {
      CHECK(got[i] == static_cast<int>(0xaaaa0000u));
      CHECK(got[i + 16] == 4 * (i + (i ^ 1)));
    }
  });
}

// ---- atomics ------------------------------------------------------------------------------------

struct Counters {
  int sum, low;
  unsigned count, high, last, bits;
  unsigned long long wide;
  unsigned tickets[64];
};
__global__ void count(Counters* c) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&c->sum, -static_cast<int>(i));
  atomicMin(&c->low, -static_cast<int>(i));
  atomicMax(&c->high, i);
  atomicAdd(&c->wide, 1ull << 33);
  atomicOr(&c->bits, 1u << (i % 7));
  atomicExch(&c->last, i);
  c->tickets[atomicAdd(&c->count, 1u)] = i;
}
TEST_CASE("imitation: atomics on integers") {
  in_every_order([] {
    DeviceArray<Counters> counters(1);
    counters.zero();
    launch(nullptr, 4, 16, 0, count, counters.data());
    Counters c = counters.host()[0];
    CHECK(c.sum == -63 * 64 / 2);
    CHECK(c.low == -63);
    CHECK(c.high == 63);
    CHECK(c.wide == 64ull << 33);
    CHECK(c.bits == 127);
    CHECK(c.count == 64);
    CHECK(c.last == c.tickets[63]);
    std::sort(c.tickets, c.tickets + 64);
    for (unsigned i = 0; i < 64; ++i) CHECK(c.tickets[i] == i);
  });
}

}  // namespace
}  // namespace starling::kernels::cuda
