// Tensor cores and asynchronous copies on the imitation.
#include <cuda_runtime.h>
#include <doctest/doctest.h>
#include <starling_ptx.h>
#include <starling_shared.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/half.h"
#include "kernels/cuda/launch.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/orders.h"
#include "tests/cuda/types.h"

namespace starling::kernels::cuda {
namespace {

// d = c + a b. a [16,16] and b [16,8] row-major, through shared memory as kernels load them; `plain`: each
// lane picks its elements by the PTX ISA's formulas instead.
template <Precision kPrecision>
__global__ void product(const std::uint16_t* a, const std::uint16_t* b, const float* c, float* d,
                        bool plain) {
  __shared__ __align__(16) std::uint16_t left[16][24], right[16][8];
  const unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
  for (unsigned i = lane; i < 256; i += 32) left[i / 16][i % 16] = a[i];
  for (unsigned i = lane; i < 128; i += 32) right[i / 8][i % 8] = b[i];
  __syncwarp();
  std::uint32_t words[4], columns[4];
  if (plain) {
    const auto pair = [](std::uint16_t first, std::uint16_t second) {
      return first | std::uint32_t{second} << 16;
    };
    for (unsigned i = 0; i < 8; i += 2) {  // a0, a1; a2, a3; ...
      const unsigned row = i < 2 || (i >= 4 && i < 6) ? g : g + 8;
      const unsigned column = t * 2 + (i < 4 ? 0 : 8);
      words[i / 2] = pair(left[row][column], left[row][column + 1]);
    }
    for (unsigned i = 0; i < 4; i += 2) {
      const unsigned row = t * 2 + (i < 2 ? 0 : 8);
      columns[i / 2] = pair(right[row][g], right[row + 1][g]);
    }
  } else {
    load_matrix_x4(words, &left[lane % 16][lane / 16 * 8]);
    load_matrix_x4_transposed(columns, &right[lane % 16][0]);
  }
  const std::uint32_t two[2] = {columns[0], columns[1]};
  float sums[4];
  for (unsigned i = 0; i < 4; ++i) sums[i] = c[(g + i / 2 * 8) * 8 + t * 2 + i % 2];
  mma<Half<kPrecision>>(sums, words, two);
  for (unsigned i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = sums[i];
}
TEST_CASE("imitation: mma_bf16, mma_f16 and load_matrix against plain loops") {
  for (const Precision type : kHalves) {
    CAPTURE(text_of(type));
    // Small whole numbers, which sums in any order give exactly.
    std::vector<std::uint16_t> a(256), b(128);
    std::vector<float> c(128), wanted(128);
    for (int i = 0; i < 256; ++i) a[i] = half_of(type, static_cast<float>(i * 7 % 23 - 11));
    for (int i = 0; i < 128; ++i) b[i] = half_of(type, static_cast<float>(i * 5 % 19 - 9));
    for (int i = 0; i < 128; ++i) wanted[i] = c[i] = static_cast<float>(i % 13);
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 8; ++n)
        for (int k = 0; k < 16; ++k)
          wanted[m * 8 + n] += value_of(type, a[m * 16 + k]) * value_of(type, b[k * 8 + n]);
    const DeviceArray<std::uint16_t> left(a), right(b);
    const DeviceArray<float> start(c);
    in_every_order([&] {
      for (const bool plain : {false, true}) {
        CAPTURE(plain);
        DeviceArray<float> d(128);
        launch(nullptr, 1, 32, 0,
               type == Precision::kBf16 ? product<Precision::kBf16> : product<Precision::kFp16>,
               left.data(), right.data(), start.data(), d.data(), plain);
        CHECK(d.host() == wanted);
      }
    });
  }
}

// What IEEE 754 says of binary16, in double.
double value_of_f16(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31),
            significand = static_cast<int>(bits & 1023);
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == 31) return significand != 0 ? std::nan("") : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(significand, -24)
                               : std::ldexp(1024 + significand, exponent - 25));
}
double to_nearest_f16(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int unit = std::max(std::ilogb(value), -14) - 10;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::fabs(rounded) > 65504 ? std::copysign(INFINITY, value) : rounded;
}

__global__ void convert(const std::uint16_t* halves, float* wide, const float* floats,
                        std::uint32_t* packed, unsigned n, unsigned m) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) wide[i] = float_of_f16(halves[i]);
  if (i < m) packed[i] = pack_f16(floats[i], -floats[i]);
}
TEST_CASE("imitation: every fp16 is the float with its value, and every float the nearest fp16") {
  constexpr unsigned kHalvesThere = 0x10000;
  std::vector<std::uint16_t> halves(kHalvesThere);
  std::vector<float> floats;
  for (unsigned i = 0; i < kHalvesThere; ++i) {
    halves[i] = static_cast<std::uint16_t>(i);
    const auto value = static_cast<float>(value_of_f16(i)),
               next = static_cast<float>(value_of_f16(i + 1));
    const float middle = (value + next) / 2;  // exact where both are finite
    for (const float x :
         {value, middle, std::nextafter(middle, value), std::nextafter(middle, next)})
      floats.push_back(x);
  }
  for (const float x : {65520.0f, 65519.996f, 1e6f, 3e38f, 1e-8f, 1e-40f}) floats.push_back(x);
  const auto m = static_cast<unsigned>(floats.size());
  const DeviceArray<std::uint16_t> from(halves);
  const DeviceArray<float> values(floats), wide(kHalvesThere);
  const DeviceArray<std::uint32_t> packed(m);
  launch(nullptr, (m + 255) / 256, 256, 0, convert, from.data(), wide.data(), values.data(),
         packed.data(), kHalvesThere, m);
  const auto same = [](double a, double b) {
    return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
  };
  const auto floats_there = wide.host();
  const auto packed_there = packed.host();
  std::size_t wrong = 0;
  for (unsigned i = 0; i < kHalvesThere; ++i) wrong += !same(floats_there[i], value_of_f16(i));
  CHECK(wrong == 0);
  for (unsigned i = 0; i < m; ++i) {
    const std::uint32_t two = packed_there[i];
    const double wanted = to_nearest_f16(floats[i]);
    wrong += !same(value_of_f16(two & 0xffff), wanted) || !same(value_of_f16(two >> 16), -wanted);
  }
  CHECK(wrong == 0);
}

// Every lane's registers of load_matrix_x4: element numbers.
__global__ void load(std::uint32_t* out, bool transposed) {
  __shared__ __align__(16) std::uint16_t matrices[4][8][8];
  const unsigned lane = threadIdx.x;
  for (unsigned i = 0; i < 8; ++i)
    matrices[lane / 8][lane % 8][i] = static_cast<std::uint16_t>(lane / 8 * 64 + lane % 8 * 8 + i);
  __syncwarp();
  std::uint32_t r[4];
  if (transposed)
    load_matrix_x4_transposed(r, matrices[lane / 8][lane % 8]);
  else
    load_matrix_x4(r, matrices[lane / 8][lane % 8]);
  for (unsigned i = 0; i < 4; ++i) out[lane * 4 + i] = r[i];
}
TEST_CASE("imitation: which lane load_matrix_x4 gives which element") {
  for (const bool transposed : {false, true}) {
    DeviceArray<std::uint32_t> out(128);
    launch(nullptr, 1, 32, 0, load, out.data(), transposed);
    const auto got = out.host();
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned line = lane / 4, place = lane % 4 * 2;
        const unsigned first = transposed ? place * 8 + line : line * 8 + place;
        const unsigned second = first + (transposed ? 8 : 1);
        CHECK(got[lane * 4 + i] == ((i * 64 + first) | (i * 64 + second) << 16));
      }
  }
}

// Tiles come in turns, one on its way while another is read. early: reads before it waits.
__global__ void copy_tiles(const float4* in, float* sums, unsigned tiles, bool early) {
  STARLING_DYNAMIC_SHARED(float4, tile);  // [2][blockDim.x]
  const unsigned width = blockDim.x, i = threadIdx.x;
  float sum = 0;
  copy_async_16(&tile[i], &in[i]);
  copy_async_commit();
  for (unsigned k = 0; k < tiles; ++k) {
    if (k + 1 < tiles) copy_async_16(&tile[(k + 1) % 2 * width + i], &in[(k + 1) * width + i]);
    copy_async_commit();
    if (!early) copy_async_wait<1>();
    __syncthreads();
    const float4 other = tile[k % 2 * width + (i + 1) % width];
    sum += other.x + other.y + other.z + other.w;
    __syncthreads();
  }
  copy_async_wait<0>();
  sums[i] = sum;
}
TEST_CASE("imitation: asynchronous copies are there when they were waited for, and not before") {
  const unsigned width = 40, tiles = 5;
  std::vector<float4> in(width * tiles);
  for (unsigned i = 0; i < in.size(); ++i) in[i] = make_float4(1, 2, 3, static_cast<float>(i));
  std::vector<float> wanted(width);
  for (unsigned i = 0; i < width; ++i)
    for (unsigned k = 0; k < tiles; ++k)
      wanted[i] += 6 + static_cast<float>(k * width + (i + 1) % width);
  const DeviceArray<float4> from(in);
  in_every_order([&] {
    DeviceArray<float> sums(width);
    const std::size_t shared = 2 * width * sizeof(float4);
    launch(nullptr, 1, width, shared, copy_tiles, from.data(), sums.data(), tiles, false);
    CHECK(sums.host() == wanted);
    launch(nullptr, 1, width, shared, copy_tiles, from.data(), sums.data(), tiles, true);
    CHECK(sums.host() != wanted);
  });
}

// What shared memory holds while groups are on their way: kLeft of two may be.
template <int kLeft>
__global__ void look_early(const uint4* in, unsigned* out) {
  STARLING_DYNAMIC_SHARED(uint4, tile);
  for (unsigned i = 0; i < 2; ++i) {
    tile[i] = make_uint4(9, 9, 9, 9);
    copy_async_16(&tile[i], &in[i]);
    copy_async_commit();
  }
  copy_async_wait<kLeft>();
  for (unsigned i = 0; i < 2; ++i) out[i] = tile[i].x;
}
TEST_CASE("imitation: waiting for all but the latest groups") {
  const unsigned kPattern = 0xa5a5a5a5;
  const DeviceArray<uint4> in({make_uint4(1, 0, 0, 0), make_uint4(2, 0, 0, 0)});
  const auto seen = [&](auto kernel) {
    DeviceArray<unsigned> out(2);
    launch(nullptr, 1, 1, 32, kernel, in.data(), out.data());
    return out.host();
  };
  CHECK(seen(look_early<3>) == std::vector{kPattern, kPattern});
  CHECK(seen(look_early<2>) == std::vector{kPattern, kPattern});
  CHECK(seen(look_early<1>) == std::vector{1u, kPattern});
  CHECK(seen(look_early<0>) == std::vector{1u, 2u});
}

}  // namespace
}  // namespace starling::kernels::cuda
