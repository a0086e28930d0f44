#pragma once
// Functions of one element, block or sum that the host and a device call alike: a compiler for another
// processor reads the headers that include this one, and they include nothing that it cannot read.

#ifdef __CUDACC__
#define STARLING_BOTH __host__ __device__
#else
#define STARLING_BOTH
#endif

// Before a loop of constant bounds, whose array then lies in registers; before one that is to stay a loop.
#ifdef __CUDA_ARCH__
#define STARLING_UNROLL _Pragma("unroll")
#define STARLING_ROLL _Pragma("unroll 1")
#else
#define STARLING_UNROLL
#define STARLING_ROLL
#endif
