#include "core/data/permutation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace starling {
namespace {

std::vector<std::uint64_t> values(std::uint64_t seed, std::uint64_t pass, std::uint64_t n) {
  const Permutation permutation(seed, pass, n);
  std::vector<std::uint64_t> out(n);
  for (std::uint64_t i = 0; i < n; ++i) out[i] = permutation(i);
  return out;
}

bool is_bijection(std::vector<std::uint64_t> all) {
  std::sort(all.begin(), all.end());
  for (std::uint64_t i = 0; i < all.size(); ++i)
    if (all[i] != i) return false;
  return true;
}

}  // namespace

TEST_CASE("a permutation of every small size and of sizes around powers of two") {
  for (std::uint64_t n = 1; n <= 130; ++n) CHECK(is_bijection(values(7, n, n)));
  for (const std::uint64_t n :
       {255u, 256u, 257u, 1023u, 1025u, 4096u, 4097u, 65535u, 65537u, 91234u})
    for (std::uint64_t pass = 0; pass < 2; ++pass) CHECK(is_bijection(values(1, pass, n)));
}

TEST_CASE("another pass or seed is another order") {
  const auto first = values(1, 0, 1000);
  CHECK(first == values(1, 0, 1000));
  for (const auto& other : {values(1, 1, 1000), values(2, 0, 1000), values(1ull << 32, 0, 1000),
                            values(1, 1ull << 32, 1000)}) {
    int same = 0;
    for (std::size_t i = 0; i < other.size(); ++i) same += other[i] == first[i];
    CHECK(same < 12);  // one is expected by chance
  }
}

TEST_CASE("neighbours are spread: a quarter of the places holds a quarter of each quarter") {
  const std::uint64_t n = 40000;
  const auto all = values(3, 5, n);
  int count[4][4] = {};
  for (std::uint64_t i = 0; i < n; ++i) ++count[i * 4 / n][all[i] * 4 / n];
  for (const auto& row : count)
    for (const int c : row) CHECK(std::abs(c - 2500) < 200);  // more than four standard deviations
}

TEST_CASE("the order never changes between versions: it is part of a job's bits") {
  // From a second implementation, in Python.
  CHECK(values(1, 0, 10) == std::vector<std::uint64_t>{8, 3, 9, 4, 0, 6, 1, 7, 2, 5});
  const Permutation large(1, 0, 91234);
  const std::uint64_t first[] = {89632, 81792, 11789, 41003};
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(large(i) == first[i]);
}

TEST_CASE("large sizes stay inside and apart") {
  const std::uint64_t n = (1ull << 61) + 12345;
  const Permutation permutation(9, 3, n);
  std::vector<std::uint64_t> out;
  for (std::uint64_t i = 0; i < 2000; ++i) out.push_back(permutation(n - 1 - i));
  for (const auto v : out) CHECK(v < n);
  std::sort(out.begin(), out.end());
  CHECK(std::adjacent_find(out.begin(), out.end()) == out.end());
}

}  // namespace starling
