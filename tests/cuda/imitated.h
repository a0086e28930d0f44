#pragma once
// What tests of the imitation's functions for the host have in common.

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/cuda/imitation/imitation.h"

namespace starling::kernels::cuda {

// A way of streams, for a scope.
class WorkScope {
 public:
  explicit WorkScope(imitation::Work work) : before_(imitation::set_work(work)) {}
  ~WorkScope() { imitation::set_work(before_); }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

 private:
  const imitation::Work before_;
};

// Memory that host and device follow.
struct Pinned {
  explicit Pinned(std::size_t n) : size(n) {
    check(cudaHostAlloc(&data, n * sizeof(int), cudaHostAllocDefault), "pinned memory");
  }
  ~Pinned() { check(cudaFreeHost(data), "pinned memory"); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  std::vector<int> all() const { return {data, data + size}; }
  int* data = nullptr;
  std::size_t size;
};

__global__ inline void fill(int n, int value, int* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = value + i;
}
__global__ inline void scale(int n, int by, int* values) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) values[i] *= by;
}

inline std::vector<int> filled(int n, int value, int by = 1) {
  std::vector<int> all(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) all[static_cast<std::size_t>(i)] = (value + i) * by;
  return all;
}

// The error of a call, which is also the thread's last one.
inline cudaError_t refused(cudaError_t error) {
  CHECK(cudaGetLastError() == error);
  CHECK(cudaGetLastError() == cudaSuccess);
  return error;
}

}  // namespace starling::kernels::cuda
