#pragma once
// The host and a device call these functions of an element, block or sum alike: compilers for
// other processors read the headers that include this one; they include only what those can read.

#ifdef __CUDACC__
#define STARLING_BOTH __host__ __device__
#else
#define STARLING_BOTH
#endif

// UNROLL: before a loop of constant bounds, for an array in registers; ROLL: a loop stays one.
#ifdef __CUDA_ARCH__
#define STARLING_UNROLL _Pragma("unroll")
#define STARLING_ROLL _Pragma("unroll 1")
#else
#define STARLING_UNROLL
#define STARLING_ROLL
#endif
