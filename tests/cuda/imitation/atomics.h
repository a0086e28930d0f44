#pragma once
// CUDA's atomics on integers, as its headers declare them. There are none on floating point numbers: the
// order of their sums would be the order of threads.

#include <cstdint>

namespace starling::imitation {

template <class T, class Change>
T atomically(T* at, Change change) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(at, &old, change(old), /*weak=*/true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

}  // namespace starling::imitation

#define STARLING_ATOMICS(type)                                                                    \
  inline type atomicAdd(type* at, type value) {                                                   \
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);                                       \
  }                                                                                               \
  inline type atomicExch(type* at, type value) {                                                  \
    return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);                                      \
  }                                                                                               \
  inline type atomicCAS(type* at, type expected, type value) {                                    \
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    return expected;                                                                              \
  }                                                                                               \
  inline type atomicAnd(type* at, type value) {                                                   \
    return __atomic_fetch_and(at, value, __ATOMIC_RELAXED);                                       \
  }                                                                                               \
  inline type atomicOr(type* at, type value) {                                                    \
    return __atomic_fetch_or(at, value, __ATOMIC_RELAXED);                                        \
  }                                                                                               \
  inline type atomicXor(type* at, type value) {                                                   \
    return __atomic_fetch_xor(at, value, __ATOMIC_RELAXED);                                       \
  }
STARLING_ATOMICS(int)
STARLING_ATOMICS(unsigned)
STARLING_ATOMICS(unsigned long long)
#undef STARLING_ATOMICS

#define STARLING_ATOMIC_ENDS(type)                                    \
  inline type atomicMin(type* at, type value) {                       \
    return starling::imitation::atomically(                           \
        at, [value](type old) { return value < old ? value : old; }); \
  }                                                                   \
  inline type atomicMax(type* at, type value) {                       \
    return starling::imitation::atomically(                           \
        at, [value](type old) { return old < value ? value : old; }); \
  }
STARLING_ATOMIC_ENDS(int)
STARLING_ATOMIC_ENDS(unsigned)
STARLING_ATOMIC_ENDS(long long)
STARLING_ATOMIC_ENDS(unsigned long long)
#undef STARLING_ATOMIC_ENDS

inline int atomicSub(int* at, int value) {
  return __atomic_fetch_sub(at, value, __ATOMIC_RELAXED);
}
inline unsigned atomicSub(unsigned* at, unsigned value) {
  return __atomic_fetch_sub(at, value, __ATOMIC_RELAXED);
}
