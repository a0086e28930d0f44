#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/base/hash.h"
#include "kernels/grid/exact_mean.h"

namespace starling::kernels {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

// A second implementation for values within 100 bits of each other: 128-bit integers in units of
// 2^unit, and a mean found by trying the floats around the quotient.
float mean_by_integers(const std::vector<float>& values, int unit, int M) {
  __int128 sum = 0;
  for (const float x : values) sum += static_cast<__int128>(std::ldexp(double{x}, -unit));
  // Nearest float f: |sum - f M| is least, ties to the even significand.
  const auto start = static_cast<float>(std::ldexp(static_cast<long double>(sum) / M, unit));
  float best = start;
  __int128 best_distance = -1;
  for (const float f : {std::nextafter(start, -kLargest), start, std::nextafter(start, kLargest)}) {
    __int128 distance = sum - static_cast<__int128>(std::ldexp(double{f}, -unit)) * M;
    if (distance < 0) distance = -distance;
    const bool even = (std::bit_cast<std::uint32_t>(f) & 1) == 0;
    if (best_distance < 0 || distance < best_distance || (distance == best_distance && even)) {
      best = f;
      best_distance = distance;
    }
  }
  return best;
}

TEST_CASE("exact mean: equals 128-bit integer arithmetic, ties included") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20000; ++round) {
    const int M = 1 + static_cast<int>(random() % 9);
    const bool ties = round % 2 == 0;
    std::vector<float> values(static_cast<std::size_t>(M));
    for (float& x : values)
      x = ties ? std::ldexp(static_cast<float>(static_cast<int>(random() % 4096) - 2048),
                            static_cast<int>(random() % 3) * 13 - 20)
               : std::ldexp(static_cast<float>(static_cast<std::int32_t>(random())),
                            static_cast<int>(random() % 30) - 40);
    WideSum sum;
    for (const float x : values) sum.add(x);
    REQUIRE(sum.mean(static_cast<std::uint32_t>(M)) == mean_by_integers(values, -70, M));
  }
}

TEST_CASE("exact mean: extremes neither overflow nor round to zero too early") {
  struct Case {
    const char* name;
    std::vector<float> values;
    std::uint32_t M;
    float mean;
  };
  const Case cases[] = {
      {"nothing", {}, 8, 0},
      {"cancelled", {kLargest, kSmallest, -kLargest, -kSmallest}, 3, 0},
      {"what is left of a cancellation", {kLargest, kSmallest, -kLargest}, 1, kSmallest},
      {"many of the largest", std::vector<float>(1000, kLargest), 1000, kLargest},
      {"many of the most negative", std::vector<float>(1000, -kLargest), 1000, -kLargest},
      {"smallest", {kSmallest}, 1, kSmallest},
      {"half of the smallest ties to zero", {kSmallest}, 2, 0},
      {"three halves of it tie to two", {3 * kSmallest}, 2, 2 * kSmallest},
      {"two thirds round up", {2 * kSmallest}, 3, kSmallest},
      {"a tie broken by the smallest", {0x1000001p0f, 0x1p0f, kSmallest}, 1, 0x1000002p0f},
      {"a tie broken downwards", {0x1000000p0f, 0x1p0f, -kSmallest}, 1, 0x1000000p0f},
      {"subnormal to normal", {0x1p-126f, -kSmallest}, 1, 0x1.fffffcp-127f},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    WideSum sum;
    for (const float x : c.values) sum.add(x);
    CHECK(sum.mean(c.M) == c.mean);
  }
  WideSum large;  // a total that no finite gradient gives
  large.add_total(std::numeric_limits<std::int32_t>::max(), 100);
  CHECK(large.mean(1) == std::numeric_limits<float>::infinity());
  WideSum grid;
  grid.add_total(std::numeric_limits<std::int32_t>::min(), -140);
  CHECK(grid.mean(1) == -0x1p-109f);
}

TEST_CASE("exact mean: the order of adding does not matter") {
  std::mt19937_64 random(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> values(50);
    for (float& x : values) {
      x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (!std::isfinite(x)) x = 0;
    }
    WideSum one, two;
    for (const float x : values) one.add(x);
    std::shuffle(values.begin(), values.end(), random);
    for (const float x : values) two.add(x);
    REQUIRE(one.mean(50) == two.mean(50));
  }
}

TEST_CASE("sum of squares: equals adding each square exactly, in any cut") {
  std::mt19937_64 random(5);
  std::vector<float> values(200000);  // more than a bin's terms
  for (float& x : values) {
    x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(x)) x = kLargest;
  }
  values[0] = kSmallest;
  ExactSum expected;
  for (const float x : values) expected.add(double{x} * double{x});
  SquareSum whole;
  whole.add(values);
  CHECK(whole.sum() == expected);

  ExactSum parts;
  for (std::size_t at = 0; at < values.size();) {
    const std::size_t n = std::min<std::size_t>(1 + random() % 70000, values.size() - at);
    SquareSum part;
    part.add(std::span(values).subspan(at, n));
    parts.add(part.sum());
    at += n;
  }
  CHECK(parts == expected);
  // One exponent, largest significand: the bins' worst case.
  SquareSum worst;
  const std::vector<float> same((1u << 16) + 1, 0x1.fffffep0f);
  worst.add(same);
  ExactSum slow;
  for (const float x : same) slow.add(double{x} * double{x});
  CHECK(worst.sum() == slow);
}

}  // namespace
}  // namespace starling::kernels
