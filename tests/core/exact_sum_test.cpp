#include "core/base/exact_sum.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace starling {
namespace {

constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double x : values) sum.add(x);
  return sum;
}

// A second implementation: a list of doubles whose exact sum is the sum and which do not overlap
// (Shewchuk's expansions), rounded as Python's fsum does. Not for overflow.
double sum_by_expansion(const std::vector<double>& values) {
  std::vector<double> parts;
  for (double x : values) {
    std::size_t kept = 0;
    for (double y : parts) {
      if (std::fabs(x) < std::fabs(y)) std::swap(x, y);
      const double high = x + y;
      const double low = y - (high - x);
      if (low != 0) parts[kept++] = low;
      x = high;
    }
    parts.resize(kept);
    parts.push_back(x);
  }
  double high = 0, low = 0;
  std::size_t n = parts.size();
  while (n > 0) {
    const double x = high, y = parts[--n];
    high = x + y;
    low = y - (high - x);
    if (low != 0) break;
  }
  // A tie is decided by the sign of what lies below it.
  if (n > 0 && ((low < 0 && parts[n - 1] < 0) || (low > 0 && parts[n - 1] > 0))) {
    const double twice = low * 2, moved = high + twice;
    if (twice == moved - high) high = moved;
  }
  return high;
}

double any_double(std::mt19937_64& random, int exponent_bits) {
  // Sign and mantissa as they come, exponents within 2^exponent_bits of each other.
  const std::uint64_t bits = random();
  const std::uint64_t exponent = 1023 + (bits >> 53) % (1u << exponent_bits);
  return std::bit_cast<double>((bits & 0x800fffffffffffffull) | exponent << 52);
}

TEST_CASE("exact sum: equals an expansion of doubles, at every spread of exponents") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::vector<double> values(1 + random() % 40);
    for (double& x : values) x = any_double(random, 1 + round % 9);
    if (round % 3 == 0) values.push_back(-values[0]);
    CAPTURE(round);
    REQUIRE(sum_of(values).value() == sum_by_expansion(values));
  }
}

TEST_CASE("exact sum: ends of the range, cancellation and ties") {
  struct Case {
    const char* name;
    std::vector<double> values;
    double sum;
  };
  const Case cases[] = {
      {"nothing", {}, 0},
      {"zeros", {0.0, -0.0}, 0},
      {"subnormals", {kTiny, kTiny, 2 * kTiny}, 4 * kTiny},
      {"subnormal to normal", {0x1p-1022, -kTiny, kTiny}, 0x1p-1022},
      {"the largest cancels", {kMax, kTiny, -kMax}, kTiny},
      {"beyond the range and back", {kMax, kMax, kMax, -kMax, -kMax}, kMax},
      {"below the range and back", {-kMax, -kMax, kMax, 1}, -kMax},
      {"negative", {-1, -0x1p-60}, -1},
      {"tie to even, down", {1, 0x1p-53}, 1},
      {"tie to even, up", {1, 0x1p-52, 0x1p-53}, 1 + 0x1p-51},
      {"tie broken far below", {1, 0x1p-53, kTiny}, 1 + 0x1p-52},
      {"tie broken downwards", {1, 0x1p-52, 0x1p-53, -kTiny}, 1 + 0x1p-52},
      {"negative tie", {-1, -0x1p-53}, -1},
      {"carry through all ones", {kTiny, 0x1p900, -kTiny, 0x1p-1000, -0x1p900}, 0x1p-1000},
      {"rounds up to the next power", {0x1.fffffffffffffp0, 0x1p-53}, 2},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(sum_of(c.values).value() == c.sum);
  }
}

TEST_CASE("exact sum: order and grouping do not matter") {
  std::mt19937_64 random(2);
  std::vector<double> values(500);
  for (double& x : values) {
    x = std::bit_cast<double>(random());
    if (!std::isfinite(x)) x = kTiny;
  }
  const ExactSum expected = sum_of(values);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    ExactSum parts[3];
    for (const double x : values) parts[random() % 3].add(x);
    parts[0].add(parts[1]);
    parts[0].add(parts[2]);
    REQUIRE(parts[0] == expected);
    REQUIRE(parts[0].value() == expected.value());
  }
}

TEST_CASE("exact sum: squares of floats are exact") {
  const double least = std::numeric_limits<float>::denorm_min();
  const double most = std::numeric_limits<float>::max();
  ExactSum sum;
  sum.add(least * least);
  CHECK(sum.value() == 0x1p-298);
  sum.add(most * most);
  sum.add(-(most * most));
  CHECK(sum.value() == 0x1p-298);
}

TEST_CASE("exact sum: words are canonical and go there and back") {
  std::mt19937_64 random(3);
  CHECK(ExactSum().words().empty());
  CHECK(sum_of({5, -5}).words().empty());
  for (int round = 0; round < 500; ++round) {
    std::vector<double> values(random() % 5);
    for (double& x : values) x = any_double(random, 10) * (round % 2 ? 1 : 0x1p-1000);
    const ExactSum sum = sum_of(values);
    const auto words = sum.words();
    const auto back = ExactSum::from_words(words);
    REQUIRE(back.has_value());
    REQUIRE(back.value() == sum);
    REQUIRE(back.value().words() == words);
    REQUIRE(back.value().value() == sum.value());
    // Equal sums made in another way have equal words.
    ExactSum other = sum;
    other.add(3);
    other.add(-3);
    REQUIRE(other.words() == words);
  }
}

TEST_CASE("exact sum: too many words are refused, redundant ones are not kept") {
  CHECK(ExactSum::from_words(std::vector<std::uint64_t>(36, 1)).has_value());
  CHECK(ExactSum::from_words(std::vector<std::uint64_t>(37, 0)).has_error());
  const std::vector<std::uint64_t> minus_one(20, ~0ull);
  const auto sum = ExactSum::from_words(minus_one);
  REQUIRE(sum.has_value());
  CHECK(sum.value().value() == -kTiny);
  CHECK(sum.value().words() == std::vector<std::uint64_t>{~0ull});
}

}  // namespace
}  // namespace starling
