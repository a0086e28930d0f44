#include "kernels/grid/exact_mean.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/base/check.h"

namespace starling::kernels {
namespace {

using Wide = unsigned __int128;

constexpr int kLowest = -149;  // exponent of the smallest subnormal float, bit 0 of WideSum

struct FloatParts {
  std::uint32_t significand = 0;
  std::uint32_t exponent = 0;  // biased; 0 and 1 have the same unit, 2^kLowest
  bool negative = false;
};

FloatParts parts(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  FloatParts p;
  p.exponent = (bits >> 23) & 0xff;
  p.significand = (bits & 0x7fffffu) | (p.exponent != 0 ? 0x800000u : 0);
  p.negative = bits >> 31;
  return p;
}

// An unsigned integer with 64 bits behind the point.
template <std::size_t N>
struct Fixed {
  std::array<std::uint64_t, N> words{};

  bool bit(int i) const { return (words[i / 64] >> (i % 64)) & 1; }
  bool any_below(int i) const {
    for (int w = 0; w < i / 64; ++w)
      if (words[w] != 0) return true;
    return (words[i / 64] & ((1ull << (i % 64)) - 1)) != 0;
  }
  int top() const {  // highest set bit, -1 for zero
    for (int w = static_cast<int>(N) - 1; w >= 0; --w)
      if (words[w] != 0) return 64 * w + 63 - std::countl_zero(words[w]);
    return -1;
  }
  std::uint64_t from(int i) const {  // the 64 bits from bit i up
    const std::size_t w = i / 64;
    std::uint64_t value = words[w] >> (i % 64);
    if (i % 64 != 0 && w + 1 < N) value |= words[w + 1] << (64 - i % 64);
    return value;
  }
};

}  // namespace

void WideSum::add_at(std::uint64_t magnitude, int bit, bool negative) {
  const Wide shifted = Wide{magnitude} << (bit % 64);
  std::uint64_t part[2] = {static_cast<std::uint64_t>(shifted),
                           static_cast<std::uint64_t>(shifted >> 64)};
  bool carry = false;
  for (int i = 0; bit / 64 + i < kWords && (i < 2 || carry); ++i) {
    std::uint64_t& word = words_[bit / 64 + i];
    const std::uint64_t addend = i < 2 ? part[i] : 0;
    const std::uint64_t before = word;
    if (negative) {
      word -= addend + carry;
      carry = before < addend || (carry && before == addend);
    } else {
      word += addend + carry;
      carry = word < before || (carry && word == before);
    }
  }
}

void WideSum::add(float x) {
  STARLING_CHECK(std::isfinite(x));
  const FloatParts p = parts(x);
  add_at(p.significand, std::max(0, static_cast<int>(p.exponent) - 1), p.negative);
}

void WideSum::add_total(std::int32_t total, std::int16_t exponent) {
  STARLING_CHECK(exponent >= kLowest);
  STARLING_CHECK(exponent <= 128);
  const auto wide = static_cast<std::int64_t>(total);
  add_at(static_cast<std::uint64_t>(wide < 0 ? -wide : wide), exponent - kLowest, total < 0);
}

float WideSum::mean(std::uint32_t micro_batches) const {
  auto magnitude = words_;
  const bool negative = words_[kWords - 1] >> 63;
  if (negative) {
    bool carry = true;
    for (auto& word : magnitude) {
      word = ~word + carry;
      carry = carry && word == 0;
    }
  }
  // Long division with one word behind the point. What is left over only tells that the quotient is
  // not exact; it cannot decide a tie, since a tie's bit is among those computed.
  Fixed<kWords + 1> quotient;
  Wide rest = 0;
  for (int i = kWords; i >= 0; --i) {
    rest = (rest << 64) | (i > 0 ? magnitude[i - 1] : 0);
    quotient.words[i] = static_cast<std::uint64_t>(rest / micro_batches);
    rest %= micro_batches;
  }
  const int top = quotient.top();
  if (top < 0) return 0.0f;
  const int low = std::max(top - 23, 64);  // the last place that is kept; 64 is 2^kLowest
  std::uint64_t significand = quotient.from(low) & 0xffffffu;
  const bool beyond = rest != 0 || quotient.any_below(low - 1);
  if (quotient.bit(low - 1) && (beyond || (significand & 1))) ++significand;
  // At most 2^24, so exact in float; ldexp is exact or overflows to infinity.
  const float value = std::ldexp(static_cast<float>(significand), low - 64 + kLowest);
  return negative ? -value : value;
}

void SquareSum::add(std::span<const float> values) {
  while (!values.empty()) {
    if (terms_ == kTermsMax) flush();
    const auto n = std::min<std::size_t>(values.size(), kTermsMax - terms_);
    for (std::size_t i = 0; i < n; ++i) {
      const FloatParts p = parts(values[i]);
      bins_[i % kBanks][p.exponent] += std::uint64_t{p.significand} * p.significand;
    }
    terms_ += static_cast<std::uint32_t>(n);
    values = values.subspan(n);
  }
}

namespace {

void add_to_pair(std::uint64_t* low, std::uint64_t value) {
  low[0] += value;
  low[1] += low[0] < value;
}

}  // namespace

void SquareSum::flush() {
  for (auto& bank : bins_) {
    for (std::size_t e = 0; e < bank.size(); ++e) add_to_pair(&flushed_[2 * e], bank[e]);
    bank.fill(0);
  }
  terms_ = 0;
}

void SquareSum::add_to(std::span<std::uint64_t, kWords> words) {
  flush();
  for (std::size_t e = 0; e < kWords / 2; ++e) {
    add_to_pair(&words[2 * e], flushed_[2 * e]);
    words[2 * e + 1] += flushed_[2 * e + 1];
  }
}

void SquareSum::add_sum(std::span<const std::uint64_t, 2> sum, int unit) {
  STARLING_CHECK(unit >= kLowest);
  STARLING_CHECK(unit - kLowest + 1 < 256);
  const auto e = static_cast<std::size_t>(unit - kLowest + 1);  // whose unit it is
  add_to_pair(&flushed_[2 * e], sum[0]);
  flushed_[2 * e + 1] += sum[1];
}

ExactSum SquareSum::sum() const {
  SquareSum all = *this;
  std::array<std::uint64_t, kWords> words{};
  all.add_to(words);
  return sum_of(words);
}

ExactSum SquareSum::sum_of(std::span<const std::uint64_t, kWords> words) {
  ExactSum sum;
  for (int e = 0; e < 256; ++e) {
    const int unit = 2 * (std::max(e, 1) - 1 + kLowest);
    // Halves of 32 bits are doubles without rounding.
    for (int half = 0; half < 4; ++half) {
      const std::uint64_t word = words[2 * static_cast<std::size_t>(e) + half / 2];
      const std::uint64_t bits = half % 2 == 0 ? word & 0xffffffffu : word >> 32;
      if (bits != 0) sum.add(std::ldexp(static_cast<double>(bits), unit + 32 * half));
    }
  }
  return sum;
}

}  // namespace starling::kernels
