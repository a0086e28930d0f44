#include "kernels/device/element.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

namespace starling::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_CASE("bf16: every one of its values is its own rounding") {
  for (std::uint32_t half = 0; half <= 0xffff; ++half) {
    const float value = from_bf16(static_cast<std::uint16_t>(half));
    if (std::isnan(value))
      REQUIRE(std::isnan(rounded_to_bf16(value)));
    else
      REQUIRE(to_bf16(value) == half);
  }
}

TEST_CASE("bf16: rounds to the nearer neighbour, a tie to the one whose last bit is zero") {
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    const auto value = std::bit_cast<float>(bits);
    const auto below = static_cast<std::uint16_t>(bits >> 16);  // towards zero
    const float low = from_bf16(below), high = from_bf16(static_cast<std::uint16_t>(below + 1));
    if (!std::isfinite(value) || !std::isfinite(high)) continue;
    const double to_low = std::fabs(double{value} - low), to_high = std::fabs(double{high} - value);
    const bool up = to_high < to_low || (to_high == to_low && (below & 1) != 0);
    REQUIRE(rounded_to_bf16(value) == (up ? high : low));
  }
  CHECK(rounded_to_bf16(1 + 0x1p-8f) == 1);  // ties
  CHECK(rounded_to_bf16(1 + 0x3p-8f) == 1 + 0x1p-6f);
}

TEST_CASE("bf16: what is no finite number stays so, what is too large becomes infinity") {
  CHECK(rounded_to_bf16(kInfinity) == kInfinity);
  CHECK(rounded_to_bf16(-kInfinity) == -kInfinity);
  CHECK(rounded_to_bf16(std::numeric_limits<float>::max()) == kInfinity);
  CHECK(rounded_to_bf16(-std::numeric_limits<float>::max()) == -kInfinity);
  for (const std::uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu})
    CHECK(std::isnan(rounded_to_bf16(std::bit_cast<float>(nan))));
  CHECK(std::signbit(rounded_to_bf16(-0.0f)));
  CHECK(rounded_to_bf16(std::numeric_limits<float>::denorm_min()) == 0);
}

// Goal: to_fp16() is what the processor's own conversion is.
TEST_CASE("fp16: every one of its values is its own rounding") {
  for (std::uint32_t half = 0; half <= 0xffff; ++half) {
    const float value = from_fp16(static_cast<std::uint16_t>(half));
    if (std::isnan(value)) {
      REQUIRE(std::isnan(rounded(value, Precision::kFp16)));
      continue;
    }
    REQUIRE(to_fp16(value) == half);
    REQUIRE(value == static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(half))));
  }
}

TEST_CASE("fp16: rounds as a compiler's own type does, ties and subnormals too") {
  const auto same = [](float value) {
    return to_fp16(value) == std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
  };
  std::mt19937 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isnan(value)) REQUIRE(same(value));
  }
  // All values that lie near one of its own, or near the middle of two.
  for (std::uint32_t half = 0; half < 0x7c00; ++half) {
    const float low = from_fp16(static_cast<std::uint16_t>(half));
    const float high = half == 0x7bff ? 65536 : from_fp16(static_cast<std::uint16_t>(half + 1));
    for (const float value : {low, (low + high) / 2})
      for (const float to : {-1.0f, 1e9f}) {
        REQUIRE(same(value));
        REQUIRE(same(-value));
        REQUIRE(same(std::nextafter(value, to)));
      }
  }
  CHECK(std::isnan(rounded(std::nanf(""), Precision::kFp16)));
  CHECK(to_fp16(65519.0f) == 0x7bff);
  CHECK(std::isinf(rounded(65520.0f, Precision::kFp16)));
}

}  // namespace
}  // namespace starling::kernels
