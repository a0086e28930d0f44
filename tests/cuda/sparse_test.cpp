#include "kernels/cuda/sparse.h"

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/array.h"

namespace starling::kernels::cuda {
namespace {

constexpr std::size_t kElements = 16u << 20;  // 64 MiB

std::size_t free_of_gpu() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for memory");
  return free;
}

TEST_CASE("sparse memory takes of the GPU what is backed, and gives it back") {
  CudaDevice device(0);
  { auto first = Array<int>::sparse(device, 1); }  // what the driver takes once
  const std::size_t before = free_of_gpu();
  {
    auto array = Array<int>::sparse(device, kElements);
    CHECK(free_of_gpu() == before);
    array.back(0, kElements / 4);
    const std::size_t quarter = before - free_of_gpu();
    CHECK(quarter >= kElements);
    CHECK(quarter <= kElements + (4u << 20));
    array.back(kElements / 2, kElements / 4);
    CHECK(before - free_of_gpu() == 2 * quarter);
    array.release(0, kElements / 4);
    CHECK(before - free_of_gpu() == quarter);
  }
  CHECK(free_of_gpu() == before);
}

TEST_CASE("sparse memory is one array for copies, across what was mapped piece by piece") {
  CudaDevice device(0);
  const auto queue = device.make_queue();
  auto array = Array<int>::sparse(device, kElements);
  std::vector<int> written(kElements / 2), read(kElements / 2);
  std::iota(written.begin(), written.end(), 1);
  for (std::size_t at = 0; at < kElements / 2; at += kElements / 32)
    array.back(1000 + at, kElements / 32);
  array.copy_in(*queue, 1000, written);
  array.copy_out(*queue, 1000, read);
  queue->wait();
  CHECK(read == written);
}

TEST_CASE(
    "sparse memory stays mapped while somebody keeps memory, and is zeros when it is used again") {
  CudaDevice device(0);
  const auto queue = device.make_queue();
  auto array = Array<int>::sparse(device, kElements);
  const std::size_t before = free_of_gpu();
  array.back(0, kElements);
  array.copy_in(*queue, 0, std::vector<int>(kElements, 7));
  queue->wait();
  auto keeper = device.keep_memory();
  array.release(0, kElements);
  CHECK(free_of_gpu() < before);
  array.back(kElements / 2, kElements / 2);
  std::vector<int> read(kElements / 2, 1);
  array.copy_out(*queue, kElements / 2, read);
  queue->wait();
  CHECK(read == std::vector<int>(kElements / 2));
  keeper.reset();
  CHECK(before - free_of_gpu() >= kElements / 2 * sizeof(int));
  CHECK(before - free_of_gpu() < kElements * sizeof(int));
}

}  // namespace
}  // namespace starling::kernels::cuda
