#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <thread>
#include <vector>

#include "kernels/device/emulated.h"
#include "tests/kernels/grid_device.h"

namespace starling::kernels {
namespace {

constexpr std::size_t kSize = 3u << 20;  // 12 MiB

std::vector<int> copy_of(const Array<int>& array, Device& device) {
  std::vector<int> copy(array.size());
  const auto queue = device.make_queue();
  array.copy_out(*queue, 0, copy);
  queue->wait();
  return copy;
}

// How many of the pages of [first, first + n) have memory.
std::size_t there(const Array<int>& array, std::size_t first, std::size_t n) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(n * sizeof(int) / page);
  REQUIRE(::mincore(const_cast<int*>(array.data() + first), pages.size() * page, pages.data()) ==
          0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; }));
}

bool kernel_prepares() {
  Array<int> array(host_device(), kSize);
  array.prepare(0, 1024, {});
  if (there(array, 0, 1024) > 0) return true;
  MESSAGE("skipped: this kernel does not find memory on advice");
  return false;
}

TEST_CASE("memory of the host costs something where it is prepared, and holds zeros there") {
  if (!kernel_prepares()) return;
  Array<int> array(host_device(), kSize);
  REQUIRE(there(array, 0, kSize) == 0);
  array.prepare(kSize / 2, kSize / 2, {});
  const std::size_t pages = kSize * sizeof(int) / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  CHECK(there(array, kSize / 2, kSize / 2) == pages / 2);
  CHECK(std::ranges::all_of(array.all(), [](int x) { return x == 0; }));
  array.release(kSize / 2, kSize / 2);
  CHECK(std::ranges::all_of(array.all(), [](int x) { return x == 0; }));
}

TEST_CASE("preparing ends when it is asked to") {
  if (!kernel_prepares()) return;
  std::stop_source stop;
  stop.request_stop();
  Array<int> array(host_device(), kSize);
  array.prepare(0, kSize, stop.get_token());
  CHECK(there(array, 0, kSize) == 0);
}

DEVICE_CASE("preparing changes nothing of what is written meanwhile") {
  Array<int> array(device, kSize);
  std::vector<int> written(kSize);
  std::iota(written.begin(), written.end(), 1);
  std::jthread preparing([&](const std::stop_token& stop) { array.prepare(7, kSize - 7, stop); });
  const auto queue = device.make_queue();
  for (std::size_t at = 0; at < kSize; at += kSize / 8)
    array.copy_in(*queue, at, std::span(written).subspan(at, kSize / 8));
  queue->wait();
  preparing.join();
  CHECK(copy_of(array, device) == written);
}

DEVICE_CASE("what is released or zeroed is zeros, and nothing beside it") {
  Array<int> array(device, kSize);
  CHECK(copy_of(array, device) == std::vector<int>(kSize));
  std::vector<int> wanted(kSize);
  std::iota(wanted.begin(), wanted.end(), 1);
  const auto queue = device.make_queue();
  array.copy_in(*queue, 0, wanted);
  queue->wait();
  array.release(12345, kSize / 2);  // from within a page to within a page
  std::fill_n(wanted.begin() + 12345, kSize / 2, 0);
  CHECK(copy_of(array, device) == wanted);
  queue->zero(array.data() + kSize - 9, 5 * sizeof(int));
  queue->wait();
  std::fill_n(wanted.end() - 9, 5, 0);
  CHECK(copy_of(array, device) == wanted);
}

DEVICE_CASE("sparse memory is zeros where it is backed, anew each time, and its neighbours stay") {
  auto array = Array<int>::sparse(device, kSize);
  constexpr std::size_t kFirst = 12'345, kEach = 100'000;  // within pages and granules
  std::vector<int> wanted(3 * kEach);
  std::iota(wanted.begin(), wanted.end(), 1);
  const auto queue = device.make_queue();
  const auto read = [&] {
    std::vector<int> copy(wanted.size());
    array.copy_out(*queue, kFirst, copy);
    queue->wait();
    return copy;
  };
  for (std::size_t i = 0; i < 3; ++i) array.back(kFirst + i * kEach, kEach);
  CHECK(read() == std::vector<int>(wanted.size()));
  array.copy_in(*queue, kFirst, wanted);
  queue->wait();
  CHECK(read() == wanted);
  array.release(kFirst + kEach, kEach);
  array.back(kFirst + kEach, kEach);
  std::fill_n(wanted.begin() + kEach, kEach, 0);
  CHECK(read() == wanted);
  for (std::size_t i = 0; i < 3; ++i) array.release(kFirst + i * kEach, kEach);
  array.back(kFirst, wanted.size());
  CHECK(read() == std::vector<int>(wanted.size()));
}

TEST_CASE("sparse memory costs what is backed, until the last keeper of its release has gone") {
  EmulatedDevice device;
  auto array = Array<int>::sparse(device, kSize);
  CHECK(device.backed() == 0);
  array.back(0, 2048);
  array.back(2048, 2048);
  CHECK(device.backed() == 4 * 4096);
  auto keeper = device.keep_memory();
  array.release(0, 2048);
  const auto later = device.keep_memory();
  CHECK(device.backed() == 4 * 4096);
  keeper.reset();
  CHECK(device.backed() == 2 * 4096);  // `later` began when it was released
  array.release(2048, 2048);
  array.back(3072, 1024);  // the last page of what is kept is used again
  CHECK(device.backed() == 2 * 4096);
  const auto queue = device.make_queue();
  queue->zero(array.data() + 3072, 4096);
}

TEST_CASE("sparse memory that is released twice waits for those who keep memory the second time") {
  EmulatedDevice device;
  auto array = Array<int>::sparse(device, kSize);
  array.back(0, 1024);
  auto first = device.keep_memory();
  array.release(0, 1024);
  array.back(0, 1024);
  const auto second = device.keep_memory();
  array.release(0, 1024);
  first.reset();
  CHECK(device.backed() == 4096);
}

// For kernels of a library that may never end: a GPU would make whoever gives memory back wait for them.
TEST_CASE("memory that is given back while somebody keeps memory goes with the last who does") {
  EmulatedDevice device;
  auto first = device.keep_memory(), second = device.keep_memory();
  { Array<int> array(device, 100); }
  { const auto pinned = Array<int>::pinned(device, 100); }
  CHECK(device.pieces() == 2);
  first.reset();
  CHECK(device.pieces() == 2);
  second.reset();
  CHECK(device.pieces() == 0);
  { Array<int> array(device, 100); }
  CHECK(device.pieces() == 0);
  auto never = std::make_unique<EmulatedDevice>();
  // Reachable until the process ends, and never taken back.
  static auto& kept = *new std::vector<std::shared_ptr<void>>;
  kept.push_back(never->keep_memory());
  { Array<int> array(*never, 100); }
  CHECK(never->pieces() == 1);
  never.reset();  // the kernel takes it back with the process
}

TEST_CASE("the host cannot read memory of the emulated device, pinned memory it can") {
  EmulatedDevice device;
  Array<int> own(device, 100);
  Array<int> pinned = Array<int>::pinned(device, 100);
  CHECK_FALSE(own.host());
  CHECK(pinned.host());
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  CHECK(::write(ends[1], own.data(), 1) == -1);  // the kernel looks for us
  CHECK(errno == EFAULT);
  CHECK(::write(ends[1], pinned.data(), 1) == 1);
  ::close(ends[0]);
  ::close(ends[1]);

  const auto queue = device.make_queue();
  const std::vector<int> values(100, 7);
  own.copy_in(*queue, 0, values);
  CHECK(copy_of(own, device) == values);
  CHECK(device.copies().in == 400);
  CHECK(device.copies().out == 400);
  pinned.copy_in(*queue, 0, values);
  CHECK(pinned.data()[99] == 7);
}

TEST_CASE("memory that moves has one owner, who gives it back") {
  EmulatedDevice device;  // its end checks that nothing is left
  Array<int> a(device, 10);
  const int* at = a.data();
  Array<int> b = std::move(a);
  CHECK(b.data() == at);
  b = Array<int>(device, 20);
  CHECK(b.size() == 20);
  CHECK(b.data() != nullptr);
}

// Method: what is mapped at the place once more, as another process does, has what is written.
TEST_CASE("memory that is shared says where other processes map it, and no other memory does") {
  const auto device = open_device("auto", {.shares = true}).value();
  auto array = Array<float>::shared(*device, 1000), other = Array<float>::shared(*device, 1000);
  const auto place = array.place();
  REQUIRE(place);
  array.all()[500] = 7;
  void* const again =
      ::mmap(nullptr, 4000, PROT_READ, MAP_SHARED, place->file, static_cast<off_t>(place->offset));
  REQUIRE(again != MAP_FAILED);
  CHECK(static_cast<const float*>(again)[500] == 7);
  ::munmap(again, 4000);

  REQUIRE(other.place());
  CHECK(place->id != other.place()->id);
  CHECK(place->after(2000).id == place->id);
  CHECK(place->after(2000).offset == place->offset + 2000);
  other = std::move(array);
  CHECK(other.place()->id == place->id);
  CHECK(!Array<float>(*device, 1000).place());
  CHECK(!Array<float>::pinned(*device, 1000).place());
  CHECK(!Array<float>::shared(*device, 0).place());
  CHECK(!Array<float>::shared(host_device(), 1000).place());
}

// Method: as above. The host itself cannot follow the addresses.
TEST_CASE("memory that a device exports is mapped by other processes and not by the host") {
  const auto device = open_device("emulated", {.shares = true}).value();
  auto array = Array<float>::exported(*device, 100'000);
  const Array<float> other = Array<float>::exported(*device, 1000);
  const auto place = array.place();
  REQUIRE(place);
  REQUIRE(other.place());
  CHECK(place->id != other.place()->id);
  CHECK_FALSE(array.host());
  CHECK_FALSE(place->gpu);
  CHECK(place->bytes == 400'000);
  const auto queue = device->make_queue();
  const std::vector<float> written(100'000, 7);
  array.copy_in(*queue, 0, written);
  auto* const again = static_cast<float*>(
      ::mmap(nullptr, 400'000, PROT_READ | PROT_WRITE, MAP_SHARED, place->file, 0));
  REQUIRE(again != MAP_FAILED);
  CHECK(again[99'999] == 7);
  again[0] = 9;
  std::vector<float> read(1);
  array.copy_out(*queue, 0, read);
  CHECK(read[0] == 9);
  array.release(10, 90'000);
  CHECK(again[9] == 7);
  CHECK(again[10] == 0);
  CHECK(again[90'010] == 7);
  ::munmap(again, 400'000);

  CHECK(!Array<float>(*device, 1000).place());
  CHECK(!Array<float>::exported(*device, 0).place());
  const auto alone = open_device("emulated").value();
  CHECK(!Array<float>::exported(*alone, 1000).place());
  const auto host = open_device("auto", {.shares = true}).value();
  const auto of_host = Array<float>::exported(*host, 1000);
  CHECK(of_host.host());
  CHECK(of_host.place());
}

TEST_CASE("shared memory that is released reads as zeros") {
  const auto device = open_device("auto", {.shares = true}).value();
  auto array = Array<float>::shared(*device, 100'000);
  std::ranges::fill(array.all(), 1.0f);
  array.release(10, 90'000);
  CHECK(array.all()[9] == 1);
  CHECK(array.all()[90'010] == 1);
  CHECK(std::ranges::all_of(array.part(10, 90'000), [](float x) { return x == 0; }));
}

}  // namespace
}  // namespace starling::kernels
