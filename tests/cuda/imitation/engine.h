#pragma once
// How a launch runs: a block's threads are fibers of one thread of the operating system, each of which
// goes on until it waits. Kernels see the variables below; everything else serves the headers beside.
//
// Threads: any, each with its own launches. Nothing here is shared between threads.

#include <cstddef>
#include <cstdint>

#include "tests/cuda/imitation/vectors.h"

// Of the thread that runs.
extern thread_local uint3 threadIdx, blockIdx;
extern thread_local dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace starling::imitation {

// Of the block that runs: exactly as many bytes as the launch asked for, at a multiple of 16.
extern thread_local unsigned char* dynamic_shared;
extern thread_local std::size_t dynamic_shared_bytes;

struct Grid {
  const void* kernel;  // its address, for its name
  dim3 blocks, threads;
  std::size_t shared;                  // bytes
  void (*run)(const void* arguments);  // one thread
  const void* arguments;
};
// Runs all of it. Requires that the sizes are within the device's bounds.
void run_grid(const Grid& grid);

// What lanes of a warp do together: every lane brings a slot, in which it finds its result.
struct Operation {
  const char* name;
  // slots: of the lanes in `mask`.
  void (*complete)(void* const* slots, std::uint32_t mask);
  // What a lane wrote before is seen by the others after. CUDA promises that of __syncwarp() alone.
  bool orders_memory = false;
};
// Returns when all lanes of the mask have come with the same operation and mask.
void meet_in_warp(const Operation& operation, std::uint32_t mask, void* slot);
// Returns when all threads of the block that have not returned have come.
void meet_in_block();

// Ends the process with one line that names kernel, block and thread.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Whether a kernel runs in this thread.
bool in_kernel();
// The lane within its warp of the thread that runs.
unsigned lane();

// 16 bytes that are copied when they are waited for, and not before.
struct LateCopy {
  void* to;
  const void* from;
};
void copy_later(const LateCopy& copy);
void close_copies();
// All but the `left` latest groups.
void finish_copies(int left);

}  // namespace starling::imitation
