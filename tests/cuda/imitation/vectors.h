#pragma once
// CUDA's small vectors.

// Struct NAME with COUNT components of TYPE at a multiple of BYTES, and its maker.
#define STARLING_VECTOR1(name, type) \
  struct name {                      \
    type x;                          \
  };                                 \
  inline name make_##name(type x) {  \
    return {x};                      \
  }
#define STARLING_VECTOR2(name, type)        \
  struct alignas(2 * sizeof(type)) name {   \
    type x, y;                              \
  };                                        \
  inline name make_##name(type x, type y) { \
    return {x, y};                          \
  }
#define STARLING_VECTOR3(name, type)                \
  struct name {                                     \
    type x, y, z;                                   \
  };                                                \
  inline name make_##name(type x, type y, type z) { \
    return {x, y, z};                               \
  }
#define STARLING_VECTOR4(name, type)                              \
  struct alignas(sizeof(type) < 4 ? 4 * sizeof(type) : 16) name { \
    type x, y, z, w;                                              \
  };                                                              \
  inline name make_##name(type x, type y, type z, type w) {       \
    return {x, y, z, w};                                          \
  }
#define STARLING_VECTORS(name, type) \
  STARLING_VECTOR1(name##1, type)    \
  STARLING_VECTOR2(name##2, type)    \
  STARLING_VECTOR3(name##3, type)    \
  STARLING_VECTOR4(name##4, type)

STARLING_VECTORS(char, signed char)
STARLING_VECTORS(uchar, unsigned char)
STARLING_VECTORS(short, short)
STARLING_VECTORS(ushort, unsigned short)
STARLING_VECTORS(int, int)
STARLING_VECTORS(uint, unsigned)
STARLING_VECTORS(longlong, long long)
STARLING_VECTORS(ulonglong, unsigned long long)
STARLING_VECTORS(float, float)
STARLING_VECTORS(double, double)

#undef STARLING_VECTORS
#undef STARLING_VECTOR1
#undef STARLING_VECTOR2
#undef STARLING_VECTOR3
#undef STARLING_VECTOR4

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
