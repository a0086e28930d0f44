#pragma once
// CUDA's runtime as far as the plugin uses it, for a compiler that knows nothing of CUDA: kernels run in
// the calling thread (tests/cuda/imitation/README.md). Names, values and error codes are CUDA's.

#define STARLING_IMITATION 1

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cstddef>

// ---- qualifiers ---------------------------------------------------------------------------------

#define __host__
#define __device__
#define __global__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
// One per thread of the operating system, as threads may run launches of distinct streams at once. A
// block's threads all run in one such thread, and blocks of a launch run one after another.
#define __shared__ static thread_local

#include "tests/cuda/imitation/vectors.h"
// The above is what the following is written in.
#include "tests/cuda/imitation/arithmetic.h"
#include "tests/cuda/imitation/atomics.h"
#include "tests/cuda/imitation/engine.h"
#include "tests/cuda/imitation/runtime.h"
#include "tests/cuda/imitation/warp.h"
