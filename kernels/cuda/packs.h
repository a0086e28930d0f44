#pragma once
// A Pack is sixteen bytes of a row, for kernels that are bound by memory. Which elements
// a thread has depends on sizes alone: where a row does not lie on 16-byte boundaries,
// the same elements are read one by one, and the bits of a result are the same.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/half.h"
#include "kernels/cuda/layers.h"

namespace starling::kernels::cuda {

// The number of elements of a pack.
template <class T>
inline constexpr int kPack = 16 / sizeof(T);

// Words reads and writes 16 bytes of memory, whatever their type is.
struct [[gnu::may_alias]] alignas(16) Words {
  std::uint32_t at[4];
};

inline __device__ std::uint32_t bits_of(float value) {
  return __float_as_uint(value);
}
template <Precision kPrecision>
__device__ std::uint32_t bits_of(Half<kPrecision> value) {
  return value.bits;
}

// A Pack has kPack neighbours of a row in registers.
template <class T>
struct Pack {
  Words words{};

  __device__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4)
      return __uint_as_float(words.at[i]);
    else
      return widen(T{static_cast<std::uint16_t>(words.at[i / 2] >> (i % 2 * 16))});
  }
  // Call it once for each element, in rising i.
  __device__ void put(int i, float value) {
    T narrowed;
    narrow(value, narrowed);
    put_bits(i, bits_of(narrowed));
  }
  __device__ void put_bits(int i, std::uint32_t bits) {
    if constexpr (sizeof(T) == 4)
      words.at[i] = bits;
    else if (i % 2 == 0)
      words.at[i / 2] = bits;
    else
      words.at[i / 2] |= bits << 16;
  }
};

// Returns how many elements of a pack at `column` the row has. With aligned rows all or none.
template <class T>
__device__ std::uint32_t pack_count(std::uint32_t column, std::uint32_t width) {
  constexpr std::uint32_t n = kPack<T>;
  return column < width ? min(n, width - column) : 0;
}
// Returns whether a pack of `count` elements has element i.
template <bool kAligned>
__device__ bool has(std::uint32_t count, int i) {
  return kAligned ? count != 0 : static_cast<std::uint32_t>(i) < count;
}

// Loads the first `count` elements at `from`; the elements beyond are zero.
template <bool kAligned, class T>
__device__ Pack<T> load(const T* from, std::uint32_t count) {
  Pack<T> pack;
  if constexpr (kAligned) {
    if (count != 0) pack.words = *reinterpret_cast<const Words*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i)
      pack.put_bits(i, static_cast<std::uint32_t>(i) < count ? bits_of(from[i]) : 0);
  }
  return pack;
}

template <bool kAligned, class T>
__device__ void store(const Pack<T>& pack, T* to, std::uint32_t count) {
  if constexpr (kAligned) {
    if (count != 0) *reinterpret_cast<Words*>(to) = pack.words;
  } else {
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i)
      if (static_cast<std::uint32_t>(i) < count) narrow(pack[i], to[i]);
  }
}

// Loads as many floats as a pack of another type has elements: parameters beside activations.
template <bool kAligned, int n>
__device__ void load_floats(const float* from, std::uint32_t count, float (&values)[n]) {
#pragma unroll
  for (int i = 0; i < n; i += 4) {
    const std::uint32_t left = count > static_cast<std::uint32_t>(i) ? count - i : 0;
    const Pack<float> pack = load<kAligned>(from + i, min(left, 4u));
#pragma unroll
    for (int j = 0; j < 4; ++j) values[i + j] = pack[j];
  }
}
template <bool kAligned, int n>
__device__ void store_floats(const float (&values)[n], float* to, std::uint32_t count) {
#pragma unroll
  for (int i = 0; i < n; i += 4) {
    const std::uint32_t left = count > static_cast<std::uint32_t>(i) ? count - i : 0;
    Pack<float> pack;
#pragma unroll
    for (int j = 0; j < 4; ++j) pack.put(j, values[i + j]);
    store<kAligned>(pack, to + i, min(left, 4u));
  }
}

// Returns the sum over a warp's lanes, the same bits in each lane.
inline __device__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// Returns whether rows of `width` elements, one after another from each of `from`, are whole packs.
inline bool packs_fit(Precision type, std::size_t width, std::initializer_list<const void*> from) {
  if (width * bytes_of(type) % 16 != 0) return false;
  for (const void* pointer : from)
    if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) return false;
  return true;
}

// Calls run.operator()<T, kAligned>() for the type.
template <class Run>
void with_packs(Precision type, bool aligned, const Run& run) {
  with_element(type, [&]<class T>() {
    aligned ? run.template operator()<T, true>() : run.template operator()<T, false>();
  });
}

constexpr std::uint32_t divide_up(std::uint32_t n, std::uint32_t by) {
  return n / by + (n % by != 0);
}

}  // namespace starling::kernels::cuda
