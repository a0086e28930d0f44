#pragma once
// A device's array for tests.

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "kernels/cuda/launch.h"

namespace starling::kernels::cuda {

// Threads: none. All calls wait until they are done; what a kernel wrote is seen by host().
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    check(cudaMalloc(&data_, size * sizeof(T)), "cudaMalloc");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    const auto bytes = size_ * sizeof(T);
    check(cudaMemcpy(data_, values.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~DeviceArray() { check(cudaFree(data_), "cudaFree"); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  void zero() { check(cudaMemset(data_, 0, size_ * sizeof(T)), "cudaMemset"); }
  std::vector<T> host() const {
    std::vector<T> values(size_);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const auto bytes = size_ * sizeof(T);
    check(cudaMemcpy(values.data(), data_, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

}  // namespace starling::kernels::cuda
