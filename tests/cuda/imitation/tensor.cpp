#include "tests/cuda/imitation/tensor.h"

#include <cstring>

#include "kernels/device/element.h"
#include "tests/cuda/imitation/engine.h"
#include "tests/cuda/imitation/memory.h"

namespace starling::imitation {
namespace {

constexpr unsigned kLanes = 32;
constexpr std::uint32_t kAll = 0xffffffff;

struct Product {
  float (&d)[4];
  const std::uint32_t (&a)[4];
  const std::uint32_t (&b)[2];
};

using Widen = float (*)(std::uint16_t);

// Lane 4 g + t has, of a, the pairs (row, column) of (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8);
// of b, the pairs of column g from rows 2t and 2t + 8; of d, (g, 2t), (g, 2t + 1), (g + 8, 2t),
// (g + 8, 2t + 1).
template <Widen kWiden>
void complete_product(void* const* slots, std::uint32_t) {
  const auto low = [](std::uint32_t pair) { return kWiden(static_cast<std::uint16_t>(pair)); };
  const auto high = [&](std::uint32_t pair) { return low(pair >> 16); };
  float a[16][16], b[16][8], d[16][8];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const Product& p = *static_cast<const Product*>(slots[lane]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = g + 8 * (i % 2), column = 2 * t + 8 * (i / 2);
      a[row][column] = low(p.a[i]);
      a[row][column + 1] = high(p.a[i]);
    }
    for (unsigned i = 0; i < 2; ++i) {
      b[2 * t + 8 * i][g] = low(p.b[i]);
      b[2 * t + 8 * i + 1][g] = high(p.b[i]);
    }
    for (unsigned i = 0; i < 4; ++i) d[g + 8 * (i / 2)][2 * t + i % 2] = p.d[i];
  }
  for (unsigned m = 0; m < 16; ++m)
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const Product& p = *static_cast<const Product*>(slots[lane]);
    for (unsigned i = 0; i < 4; ++i) p.d[i] = d[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
  }
}
constexpr Operation kBf16Product{"mma_bf16", &complete_product<kernels::from_bf16>};
constexpr Operation kF16Product{"mma_f16", &complete_product<kernels::from_fp16>};

struct Load {
  std::uint32_t (&r)[4];
  std::uint16_t row[8];  // as it was when the lane came
};

// Lane 4 g + t gets elements 2t and 2t + 1 of row g of every matrix; transposed, of column g.
void complete_load(void* const* slots, bool transposed) {
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i) {
      const auto element = [&](unsigned row, unsigned column) -> std::uint32_t {
        return static_cast<const Load*>(slots[8 * i + row])->row[column];
      };
      const std::uint32_t first = transposed ? element(2 * t, g) : element(g, 2 * t);
      const std::uint32_t second = transposed ? element(2 * t + 1, g) : element(g, 2 * t + 1);
      static_cast<const Load*>(slots[lane])->r[i] = first | second << 16;
    }
  }
}
constexpr Operation kLoad{"load_matrix_x4",
                          [](void* const* slots, std::uint32_t) { complete_load(slots, false); }};
constexpr Operation kLoadTransposed{
    "load_matrix_x4_transposed",
    [](void* const* slots, std::uint32_t) { complete_load(slots, true); }};

void check_shared(const char* what, const void* at) {
  if (reinterpret_cast<std::uintptr_t>(at) % 16 != 0) fail("%s at %p, no multiple of 16", what, at);
  // The bounds of dynamic shared memory are known; of static shared memory the check can only see that
  // it is no memory of the device.
  if (at >= dynamic_shared && at < dynamic_shared + dynamic_shared_bytes) return;
  if (place_of(at, 1).kind != Kind::kPageable) fail("%s at %p, not shared memory", what, at);
}

}  // namespace

void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  Product product{d, a, b};
  meet_in_warp(kBf16Product, kAll, &product);
}
void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  Product product{d, a, b};
  meet_in_warp(kF16Product, kAll, &product);
}

void load_matrix_x4(std::uint32_t (&r)[4], const void* shared, bool transposed) {
  check_shared("load_matrix_x4", shared);
  Load load{r, {}};
  std::memcpy(load.row, shared, sizeof(load.row));
  meet_in_warp(transposed ? kLoadTransposed : kLoad, kAll, &load);
}

void copy_async_16(void* shared, const void* global) {
  check_shared("copy_async_16", shared);
  if (reinterpret_cast<std::uintptr_t>(global) % 16 != 0)
    fail("copy_async_16 from %p, no multiple of 16", global);
  if (place_of(global, 16).kind == Kind::kPageable)
    fail("copy_async_16 from %p, not the device's memory", global);
  std::memset(shared, 0xa5, 16);
  copy_later({shared, global});
}

void make_copy(const LateCopy& copy) {
  std::memcpy(copy.to, copy.from, 16);
}

}  // namespace starling::imitation
