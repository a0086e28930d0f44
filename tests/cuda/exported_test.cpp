#include "kernels/cuda/exported.h"

#include <cuda_runtime.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <numeric>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/array.h"

namespace starling::kernels::cuda {
namespace {

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for memory");
  return free;
}

bool open_in_this_process(int file) {
  return ::fcntl(file, F_GETFD) >= 0;
}

TEST_CASE("memory that a GPU exports has a file that other processes map whole") {
  CudaDevice device(0, /*exports=*/true);
  auto array = Array<int>::exported(device, 100'000);
  const auto other = Array<int>::exported(device, 10);
  const auto place = array.place();
  REQUIRE(place);
  REQUIRE(other.place());
  CHECK(place->gpu);
  CHECK(place->offset == 0);
  CHECK(place->bytes >= 400'000);
  CHECK(place->bytes % 4096 == 0);
  CHECK(place->id != other.place()->id);
  CHECK((::fcntl(place->file, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK_FALSE(array.host());

  const auto queue = device.make_queue();
  std::vector<int> read(100'000, 1), written(100'000);
  array.copy_out(*queue, 0, read);
  queue->wait();
  CHECK(read == std::vector<int>(100'000));  // it starts as zeros
  std::iota(written.begin(), written.end(), 1);
  array.copy_in(*queue, 0, written);
  array.copy_out(*queue, 0, read);
  queue->wait();
  CHECK(read == written);
  array.release(0, 1000);
  array.copy_out(*queue, 0, read);
  queue->wait();
  CHECK(read[999] == 0);
  CHECK(read[1000] == 1001);
}

TEST_CASE("exported memory goes with its owner, and its file") {
  CudaDevice device(0, /*exports=*/true);
  { const auto first = Array<int>::exported(device, 1); }  // what the driver takes once
  const std::size_t before = free_memory();
  int file = -1;
  for (int i = 0; i < 20; ++i) {
    const auto array = Array<int>::exported(device, 4u << 20);
    REQUIRE(array.place());
    file = array.place()->file;
    CHECK(free_memory() < before);
  }
  CHECK(free_memory() == before);
  CHECK_FALSE(open_in_this_process(file));
}

TEST_CASE("memory has no place where a device was not opened for other processes") {
  CudaDevice device(0);
  CHECK(!Array<int>::exported(device, 1000).place());
  CudaDevice exporting(0, /*exports=*/true);
  CHECK(!Array<int>(exporting, 1000).place());
  CHECK(!Array<int>::pinned(exporting, 1000).place());
  CHECK(!Array<int>::shared(exporting, 1000).place());
  CHECK(!Array<int>::exported(exporting, 0).place());
}

TEST_CASE("exported memory is taken as any other while somebody keeps memory") {
  CudaDevice device(0, /*exports=*/true);
  auto keeper = device.keep_memory();
  int file = -1;
  {
    const auto array = Array<int>::exported(device, 1000);
    file = array.place()->file;
  }
  CHECK(open_in_this_process(file));
  keeper.reset();
  CHECK_FALSE(open_in_this_process(file));
}

TEST_CASE("a device that is alone needs no name for other programs") {
  int count = 0;
  check(cudaGetDeviceCount(&count), "counting devices");
  const std::string name = CudaDevice(0).uuid();
  CHECK(name.empty() == (count == 1));
  if (count > 1)
    CHECK(name.size() == std::string("GPU-01234567-89ab-cdef-0123-456789abcdef").size());
}

}  // namespace
}  // namespace starling::kernels::cuda
