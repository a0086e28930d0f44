#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "kernels/grid/lazy_array.h"

namespace starling::kernels {
namespace {

constexpr std::size_t kSize = 3u << 20;  // 12 MiB

// How many of the pages of [first, first + n) have memory.
std::size_t there(const LazyArray<int>& array, std::size_t first, std::size_t n) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(n * sizeof(int) / page);
  REQUIRE(::mincore(const_cast<int*>(array.data() + first), pages.size() * page, pages.data()) ==
          0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; }));
}

bool kernel_prepares() {
  LazyArray<int> array(kSize);
  array.prepare(0, 1024, {});
  if (there(array, 0, 1024) > 0) return true;
  MESSAGE("skipped: this kernel does not find memory on advice");
  return false;
}

TEST_CASE("a lazy array costs memory where it is prepared, and holds zeros there") {
  if (!kernel_prepares()) return;
  LazyArray<int> array(kSize);
  REQUIRE(there(array, 0, kSize) == 0);
  array.prepare(kSize / 2, kSize / 2, {});
  const std::size_t pages = kSize * sizeof(int) / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  CHECK(there(array, kSize / 2, kSize / 2) == pages / 2);
  CHECK(std::all_of(array.data(), array.data() + kSize, [](int x) { return x == 0; }));
  array.release(kSize / 2, kSize / 2);
  CHECK(std::all_of(array.data(), array.data() + kSize, [](int x) { return x == 0; }));
}

TEST_CASE("preparing changes nothing of what is written meanwhile") {
  LazyArray<int> array(kSize);
  std::jthread preparing([&](const std::stop_token& stop) { array.prepare(7, kSize - 7, stop); });
  std::iota(array.data(), array.data() + kSize, 1);
  preparing.join();
  std::vector<int> expected(kSize);
  std::iota(expected.begin(), expected.end(), 1);
  CHECK(std::equal(expected.begin(), expected.end(), array.data()));
}

TEST_CASE("preparing ends when it is asked to") {
  if (!kernel_prepares()) return;
  std::stop_source stop;
  stop.request_stop();
  LazyArray<int> array(kSize);
  array.prepare(0, kSize, stop.get_token());
  CHECK(there(array, 0, kSize) == 0);
}

}  // namespace
}  // namespace starling::kernels
