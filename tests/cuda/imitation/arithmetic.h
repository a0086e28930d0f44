#pragma once
// Arithmetic that CUDA has as functions. Each rounding function is one IEEE operation: the sources are
// compiled without contraction, so a product and a sum are two roundings.

#include <math.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __frcp_rn(float a) {
  return 1.0f / a;
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dsub_rn(double a, double b) {
  return a - b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __ddiv_rn(double a, double b) {
  return a / b;
}
inline double __dsqrt_rn(double a) {
  return std::sqrt(a);
}
inline double __fma_rn(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline float rsqrtf(float a) {
  return 1.0f / std::sqrt(a);
}

namespace starling::imitation {
// Values out of range become the nearest end; NaN becomes zero or, where 64 bits take part, the highest
// bit alone (PTX ISA, cvt).
template <class To, class From>
To nearest_integer(From value) {
  using Limits = std::numeric_limits<To>;
  if (std::isnan(value)) {
    const bool zero = sizeof(From) == 4 && sizeof(To) == 4;
    return zero ? To{0} : static_cast<To>(std::make_unsigned_t<To>{1} << (8 * sizeof(To) - 1));
  }
  const From rounded = std::nearbyint(value);
  const From past_end = std::ldexp(From{1}, Limits::digits);
  if (rounded >= past_end) return Limits::max();
  if (rounded < (Limits::is_signed ? -past_end : From{0})) return Limits::min();
  return static_cast<To>(rounded);
}
}  // namespace starling::imitation
inline int __float2int_rn(float a) {
  return starling::imitation::nearest_integer<int>(a);
}
inline int __float2int_rz(float a) {
  return starling::imitation::nearest_integer<int>(std::trunc(a));
}
inline unsigned __float2uint_rn(float a) {
  return starling::imitation::nearest_integer<unsigned>(a);
}
inline long long __float2ll_rn(float a) {
  return starling::imitation::nearest_integer<long long>(a);
}
inline int __double2int_rn(double a) {
  return starling::imitation::nearest_integer<int>(a);
}
inline long long __double2ll_rn(double a) {
  return starling::imitation::nearest_integer<long long>(a);
}
inline float __int2float_rn(int a) {
  return static_cast<float>(a);
}
inline float __uint2float_rn(unsigned a) {
  return static_cast<float>(a);
}
inline float __ll2float_rn(long long a) {
  return static_cast<float>(a);
}
inline float __ull2float_rn(unsigned long long a) {
  return static_cast<float>(a);
}
inline double __int2double_rn(int a) {
  return a;
}
inline double __ll2double_rn(long long a) {
  return static_cast<double>(a);
}
inline double __ull2double_rn(unsigned long long a) {
  return static_cast<double>(a);
}
inline float __double2float_rn(double a) {
  return static_cast<float>(a);
}

inline unsigned __float_as_uint(float a) {
  return std::bit_cast<unsigned>(a);
}
inline int __float_as_int(float a) {
  return std::bit_cast<int>(a);
}
inline float __uint_as_float(unsigned a) {
  return std::bit_cast<float>(a);
}
inline float __int_as_float(int a) {
  return std::bit_cast<float>(a);
}
inline long long __double_as_longlong(double a) {
  return std::bit_cast<long long>(a);
}
inline double __longlong_as_double(long long a) {
  return std::bit_cast<double>(a);
}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((std::uint64_t{a} * b) >> 32);
}
inline int __mulhi(int a, int b) {
  return static_cast<int>((std::int64_t{a} * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline int __clz(int a) {
  return std::countl_zero(static_cast<unsigned>(a));
}
inline int __clzll(long long a) {
  return std::countl_zero(static_cast<unsigned long long>(a));
}
inline int __ffs(int a) {
  return a == 0 ? 0 : std::countr_zero(static_cast<unsigned>(a)) + 1;
}
inline int __ffsll(long long a) {
  return a == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(a)) + 1;
}
inline int __popc(unsigned a) {
  return std::popcount(a);
}
inline int __popcll(unsigned long long a) {
  return std::popcount(a);
}
inline unsigned __brev(unsigned a) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= ((a >> i) & 1u) << (31 - i);
  return reversed;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((std::uint64_t{high} << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<unsigned>((bytes >> (8 * ((selector >> (4 * i)) & 7))) & 0xff) << (8 * i);
  return result;
}

// CUDA's min and max stand beside the standard's and take mixed integers.
namespace starling::imitation {
template <class A, class B>
concept Ordered = std::is_arithmetic_v<A> && std::is_arithmetic_v<B> &&
    (std::is_integral_v<A> == std::is_integral_v<B>);
}
template <class A, class B>
requires starling::imitation::Ordered<A, B>
constexpr decltype(A{} + B{}) min(A left, B right) {
  using T = decltype(A{} + B{});
  const T a = static_cast<T>(left), b = static_cast<T>(right);
  if constexpr (std::is_floating_point_v<T>) {  // a NaN gives way to a number
    if (a != a) return b;
  }
  return b < a ? b : a;
}
template <class A, class B>
requires starling::imitation::Ordered<A, B>
constexpr decltype(A{} + B{}) max(A left, B right) {
  using T = decltype(A{} + B{});
  const T a = static_cast<T>(left), b = static_cast<T>(right);
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return b;
  }
  return a < b ? b : a;
}

template <class T>
T __ldg(const T* at) {
  return *at;
}
