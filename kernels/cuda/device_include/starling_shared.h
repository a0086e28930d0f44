#pragma once
// Gives a block's dynamic shared memory as a pointer: STARLING_DYNAMIC_SHARED(float, tile);
#define STARLING_DYNAMIC_SHARED(T, name)                           \
  extern __shared__ __align__(16) unsigned char starling_shared[]; \
  T* const name = reinterpret_cast<T*>(starling_shared)
