// CUDA's functions for the host on the imitation: memory, launches, the device.

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/imitated.h"

namespace starling::kernels::cuda {
namespace {

using imitation::Work;

// ---- memory -------------------------------------------------------------------------------------

TEST_CASE("imitation: memory holds no zeros at first and lies at 256 bytes") {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{300}, std::size_t{1} << 20}) {
    std::byte *device = nullptr, *pinned = nullptr;
    CHECK(cudaMalloc(&device, bytes) == cudaSuccess);
    CHECK(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault) == cudaSuccess);
    CHECK(reinterpret_cast<std::uintptr_t>(device) % 256 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(pinned) % 256 == 0);
    CHECK(cudaMemcpy(pinned, device, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(std::all_of(pinned, pinned + bytes, [](std::byte b) { return b == std::byte{0xa5}; }));
    CHECK(cudaFree(device) == cudaSuccess);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
  }
  CHECK(cudaFree(nullptr) == cudaSuccess);
}

TEST_CASE("imitation: what is free falls with what is taken") {
  std::size_t before = 0, after = 0, total = 0;
  CHECK(cudaMemGetInfo(&before, &total) == cudaSuccess);
  void* at = nullptr;
  CHECK(cudaMalloc(&at, 4096) == cudaSuccess);
  CHECK(cudaMemGetInfo(&after, &total) == cudaSuccess);
  CHECK(before - after == 4096);
  CHECK(before <= total);
  CHECK(cudaFree(at) == cudaSuccess);
  CHECK(refused(cudaMalloc(&at, total + 1)) == cudaErrorMemoryAllocation);
}

TEST_CASE("imitation: addresses that no piece of memory begins at are not given back") {
  int on_stack = 0;
  const DeviceArray<int> array(4);
  const Pinned pinned(4);
  CHECK(refused(cudaFree(&on_stack)) == cudaErrorInvalidValue);
  CHECK(refused(cudaFree(array.data() + 1)) == cudaErrorInvalidValue);
  CHECK(refused(cudaFree(pinned.data)) == cudaErrorInvalidValue);
  CHECK(refused(cudaFreeHost(array.data())) == cudaErrorInvalidValue);
  void* at = nullptr;
  CHECK(cudaMalloc(&at, 16) == cudaSuccess);
  CHECK(cudaFree(at) == cudaSuccess);
  CHECK(refused(cudaFree(at)) == cudaErrorInvalidValue);
}

TEST_CASE("imitation: hidden memory is like any other to kernels, copies and sets") {
  const imitation::View before = imitation::set_view(imitation::View::kHidden);
  {
    DeviceArray<int> a(5000), b(5000);
    a.zero();
    launch(nullptr, 20, 256, 0, fill, 5000, 7, a.data());
    check(cudaMemcpy(b.data(), a.data(), 20000, cudaMemcpyDeviceToDevice), "a copy");
    CHECK(b.host() == filled(5000, 7));
  }
  imitation::set_view(before);
}

TEST_CASE("imitation: copies look at both ends") {
  const DeviceArray<int> a(8), b(8);
  const Pinned pinned(8);
  std::vector<int> host(8);
  struct Case {
    void* to;
    const void* from;
    std::size_t bytes;
    cudaMemcpyKind kind;
    cudaError_t error;
  };
  const Case cases[] = {
      {a.data(), host.data(), 32, cudaMemcpyHostToDevice, cudaSuccess},
      {a.data(), pinned.data, 32, cudaMemcpyHostToDevice, cudaSuccess},
      {host.data(), a.data() + 4, 16, cudaMemcpyDeviceToHost, cudaSuccess},
      {b.data(), a.data(), 32, cudaMemcpyDeviceToDevice, cudaSuccess},
      {b.data(), host.data(), 32, cudaMemcpyDefault, cudaSuccess},
      {host.data(), host.data() + 4, 16, cudaMemcpyHostToHost, cudaSuccess},
      {a.data(), host.data(), 0, cudaMemcpyHostToDevice, cudaSuccess},
      {a.data(), host.data(), 33, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
      {a.data() + 1, host.data(), 32, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
      {host.data(), host.data() + 4, 16, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
      {host.data(), a.data(), 16, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
      {a.data(), b.data(), 16, cudaMemcpyDeviceToHost, cudaErrorInvalidValue},
      {a.data(), host.data(), 16, cudaMemcpyDeviceToDevice, cudaErrorInvalidValue},
      {nullptr, host.data(), 16, cudaMemcpyDefault, cudaErrorInvalidValue},
  };
  for (const Case& c : cases) {
    CAPTURE(&c - cases);
    CHECK(refused(cudaMemcpyAsync(c.to, c.from, c.bytes, c.kind, nullptr)) == c.error);
  }
  CHECK(refused(cudaMemsetAsync(host.data(), 0, 4, nullptr)) == cudaErrorInvalidValue);
  CHECK(refused(cudaMemsetAsync(a.data() + 7, 0, 5, nullptr)) == cudaErrorInvalidValue);
}

// ---- launches -----------------------------------------------------------------------------------

TEST_CASE("imitation: a launch that the device cannot make is refused with CUDA's error") {
  DeviceArray<int> out(1);
  const auto launched = [&](dim3 grid, dim3 block, std::size_t shared) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    return refused(cudaLaunchKernelEx(&config, fill, 1, 1, out.data()));
  };
  const auto allow = [](int bytes) {
    return refused(cudaFuncSetAttribute(reinterpret_cast<const void*>(&fill),
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  };
  constexpr int kLeast = 40 * 1024, kMost = 227 * 1024;  // 48 KiB with what is static
  CHECK(launched(1, 1024, kLeast) == cudaSuccess);
  CHECK(launched(1, 1025, 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(1, dim3(32, 33), 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(1, dim3(1, 1, 65), 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(1, 0, 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(0, 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(dim3(1, 0), 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(1, 32, kLeast + 1) == cudaErrorInvalidValue);
  CHECK(allow(kMost + 1) == cudaErrorInvalidValue);
  CHECK(allow(kMost) == cudaSuccess);
  CHECK(launched(1, 32, kMost) == cudaSuccess);
  CHECK(launched(1, 32, kMost + 1) == cudaErrorInvalidValue);
  CHECK(allow(0) == cudaSuccess);
}

TEST_CASE("imitation: what ran is counted by kernel") {
  const WorkScope scope(Work::kAtOnce);
  imitation::clear_launches();
  DeviceArray<int> out(100);
  launch(nullptr, 4, 32, 0, fill, 100, 1, out.data());
  launch(nullptr, dim3(2, 3), dim3(8, 2), 0, fill, 0, 1, out.data());
  launch(nullptr, 1, 1, 0, scale, 1, 1, out.data());
  const auto all = imitation::launches();
  REQUIRE(all.size() == 2);
  CHECK(all[0].kernel == "starling::kernels::cuda::fill(int, int, int*)");
  CHECK(all[0].launches == 2);
  CHECK(all[0].blocks == 10);
  CHECK(all[0].threads == 4 * 32 + 6 * 16);
  CHECK(all[1].kernel.find("scale") != std::string::npos);
  CHECK(all[1].threads == 1);
  CHECK(imitation::launches_table().find("::fill(int, int, int*)\n") != std::string::npos);
  imitation::clear_launches();
  CHECK(imitation::launches().empty());
}

TEST_CASE("imitation: the device") {
  int count = 0, value = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 1);
  CHECK(cudaSetDevice(0) == cudaSuccess);
  CHECK(refused(cudaSetDevice(1)) == cudaErrorInvalidDevice);
  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, 0) == cudaSuccess);
  CHECK(std::string(p.name) == "imitated GPU");
  CHECK(p.major * 10 + p.minor == 90);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
  CHECK(value == 4);
  CHECK(std::string(cudaGetErrorString(cudaErrorInvalidValue)) == "invalid argument");
}

}  // namespace
}  // namespace starling::kernels::cuda
