#pragma once
// WideBits is the integer in which totals and raw side-list values are summed and rounded (with
// checks in kernels/grid/exact_mean.h). A compiler for another processor reads this too: every
// loop has constant bounds and, unrolled, constant indices, so that the words stay in registers.

#include <bit>
#include <cstdint>

#include "kernels/device/both.h"
#include "kernels/device/element.h"

namespace starling::kernels {

// The exponent of the smallest subnormal float.
inline constexpr int kLowest = -149;

// FloatParts: |x| = significand * 2^(unit() + kLowest), if x is finite.
struct FloatParts {
  std::uint32_t significand = 0;
  std::uint32_t exponent = 0;  // biased
  bool negative = false;

  STARLING_BOTH constexpr explicit FloatParts(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    exponent = (bits >> 23) & 0xff;
    significand = (bits & 0x7fffffu) | (exponent != 0 ? 0x800000u : 0);
    negative = bits >> 31;
  }
  // Exponents 0 and 1 have the same unit.
  STARLING_BOTH constexpr int unit() const {
    return exponent > 0 ? static_cast<int>(exponent) - 1 : 0;
  }
};

// WideBits has units of 2^kLowest, and room for kMicroBatchesMax floats and one grid total.
class WideBits {
 public:
  // Requires a finite x.
  STARLING_BOTH constexpr void add(float x) {
    const FloatParts p(x);
    add_at(p.significand, p.unit(), p.negative);
  }
  // Adds total * 2^exponent. Requires an exponent from kLowest to 128.
  STARLING_BOTH constexpr void add_total(std::int32_t total, std::int16_t exponent) {
    const auto bits = static_cast<std::uint32_t>(total);
    add_at(total < 0 ? 0u - bits : bits, exponent - kLowest, total < 0);
  }

  // Returns fp32(sum / micro_batches), rounded once, half to even; infinity if
  // too large for a float. Requires micro_batches of 1 to kMicroBatchesMax.
  STARLING_BOTH constexpr float mean(std::uint32_t micro_batches) const {
    const bool negative = words_[kWords - 1] >> 63;
    std::uint64_t magnitude[kWords] = {};
    bool carry = negative;
    STARLING_UNROLL
    for (int i = 0; i < kWords; ++i) {
      magnitude[i] = (negative ? ~words_[i] : words_[i]) + (carry ? 1 : 0);
      carry = carry && magnitude[i] == 0;
    }
    // This is long division. The rest at the end only tells that the quotient is
    // not exact; it cannot decide a tie, since a tie's bit is among those computed.
    Quotient quotient;
    std::uint64_t rest = 0;  // below 2^24
    STARLING_UNROLL
    for (int i = kDigits - 1; i >= 0; --i) {
      std::uint64_t digit = 0;
      if (i >= 2) digit = magnitude[i / 2 - 1] >> (i % 2 * 32) & 0xffffffffu;
      const std::uint64_t dividend = rest << 32 | digit;
      const std::uint64_t share = dividend < micro_batches ? 0 : dividend / micro_batches;
      rest = dividend - share * micro_batches;
      quotient.take(i, static_cast<std::uint32_t>(share));
    }
    const float value = quotient.rounded(rest != 0);
    return negative ? -value : value;
  }

 private:
  // This is room for 24 + 128 bits above the point, 149 below, a sign: 302 bits.
  static constexpr int kWords = 6;
  // A digit has 32 bits; two digits are behind the unit.
  static constexpr int kDigits = 2 * kWords + 2, kUnitDigit = 2;

  // A Quotient has the first digit that counts, two more, and whether any other is not zero.
  struct Quotient {
    int first = -1;
    std::uint32_t high = 0, middle = 0, low = 0;
    bool beyond = false;

    STARLING_BOTH constexpr void take(int i, std::uint32_t digit) {
      if (first < 0 && (digit != 0 || i == kUnitDigit)) first = i;
      if (first == i)
        high = digit;
      else if (first == i + 1)
        middle = digit;
      else if (first == i + 2)
        low = digit;
      else
        beyond = beyond || digit != 0;
    }

    // Returns the float nearest to it, or to a bit more if there is a rest.
    STARLING_BOTH constexpr float rounded(bool rest) const {
      // `top` is the highest of 24 bits of `high` that are kept: the
      // first that is set, unless the last would then be below the unit.
      int top = 31 - std::countl_zero(high);
      if (first == kUnitDigit && top < 23) top = 23;
      // `bits` has 63 bits from there down; the last 39 decide how the others are rounded.
      const std::uint64_t lower = std::uint64_t{middle} << 32 | low;
      const std::uint64_t bits = std::uint64_t{high} << (62 - top) | lower >> (top + 2);
      const bool more = rest || beyond || (lower & ((std::uint64_t{1} << (top + 2)) - 1)) != 0;
      auto significand = static_cast<std::uint32_t>(bits >> 39);
      const std::uint64_t behind = bits & ((std::uint64_t{1} << 39) - 1);
      constexpr std::uint64_t kTie = std::uint64_t{1} << 38;
      if (behind > kTie || (behind == kTie && (more || (significand & 1) != 0))) ++significand;
      // Adding the exponent to a significand that has its own highest bit, or none if it is
      // subnormal, makes the float, also where rounding has carried into the next power of two.
      const int exponent = 32 * (first - kUnitDigit) + top - 23;
      const std::uint32_t float_bits = (static_cast<std::uint32_t>(exponent) << 23) + significand;
      const std::uint32_t infinity = kInfinityBits;
      return std::bit_cast<float>(float_bits < infinity ? float_bits : infinity);
    }
  };

  STARLING_BOTH constexpr void add_at(std::uint32_t magnitude, int bit, bool negative) {
    const int first = bit / 64, shift = bit % 64;
    const std::uint64_t low = std::uint64_t{magnitude} << shift;
    const std::uint64_t high = shift > 32 ? magnitude >> (64 - shift) : 0;
    bool carry = false;
    STARLING_UNROLL
    for (int i = 0; i < kWords; ++i) {
      const std::uint64_t part = i == first ? low : i == first + 1 ? high : 0;
      if (part == 0 && !carry) continue;
      const std::uint64_t before = words_[i], change = part + (carry ? 1 : 0);
      words_[i] = negative ? before - change : before + change;
      const bool all_ones = carry && change == 0;
      carry = all_ones || (negative ? before < change : words_[i] < change);
    }
  }

  std::uint64_t words_[kWords] = {};  // two's complement, little-endian
};

}  // namespace starling::kernels
