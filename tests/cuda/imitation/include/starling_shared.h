#pragma once
// Dynamic shared memory of a block, as a pointer: STARLING_DYNAMIC_SHARED(float, tile);

#include <cuda_runtime.h>

#define STARLING_DYNAMIC_SHARED(T, name) \
  T* const name = reinterpret_cast<T*>(::starling::imitation::dynamic_shared)
