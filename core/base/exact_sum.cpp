#include "core/base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/check.h"

namespace starling {
namespace {

using Wide = unsigned __int128;

// Adds `part` shifted left by 64 * word bits, carrying up; modulo 2^(64 * size).
template <class Words>
void add_at(Words& words, std::size_t word, Wide part) {
  Wide carry = part;
  for (std::size_t i = word; i < words.size() && carry != 0; ++i) {
    carry += words[i];
    words[i] = static_cast<std::uint64_t>(carry);
    carry >>= 64;
  }
}

template <class Words>
void subtract_at(Words& words, std::size_t word, Wide part) {
  for (std::size_t i = word; i < words.size() && part != 0; ++i) {
    const std::uint64_t low = static_cast<std::uint64_t>(part);
    part >>= 64;
    if (words[i] < low) part += 1;
    words[i] -= low;
  }
}

}  // namespace

void ExactSum::add(double x) {
  STARLING_CHECK(std::isfinite(x));
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto exponent = static_cast<unsigned>(bits >> 52) & 0x7ff;
  std::uint64_t mantissa = bits & 0xfffffffffffffull;
  if (exponent != 0) mantissa |= 1ull << 52;
  if (mantissa == 0) return;
  const unsigned shift = exponent == 0 ? 0 : exponent - 1;  // bit 0 is 2^-1074
  const Wide part = Wide{mantissa} << (shift % 64);
  if (bits >> 63)
    subtract_at(words_, shift / 64, part);
  else
    add_at(words_, shift / 64, part);
}

void ExactSum::add(const ExactSum& other) {
  Wide carry = 0;
  for (std::size_t i = 0; i < kWords; ++i) {
    carry += Wide{words_[i]} + other.words_[i];
    words_[i] = static_cast<std::uint64_t>(carry);
    carry >>= 64;
  }
}

double ExactSum::value() const {
  const bool negative = words_[kWords - 1] >> 63;
  auto magnitude = words_;
  if (negative) {
    for (auto& word : magnitude) word = ~word;
    add_at(magnitude, 0, 1);
  }
  int top = -1;
  for (int i = kWords - 1; i >= 0 && top < 0; --i)
    if (magnitude[i] != 0) top = 64 * i + 63 - std::countl_zero(magnitude[i]);
  if (top < 0) return 0.0;
  const int low = std::max(0, top - 52);  // bit of the last kept place
  std::uint64_t mantissa = magnitude[low / 64] >> (low % 64);
  if (low % 64 != 0 && low / 64 + 1 < static_cast<int>(kWords))
    mantissa |= magnitude[low / 64 + 1] << (64 - low % 64);
  mantissa &= (1ull << 53) - 1;
  if (low > 0) {
    const int half = low - 1;
    const bool half_set = (magnitude[half / 64] >> (half % 64)) & 1;
    bool rest = (magnitude[half / 64] & ((1ull << (half % 64)) - 1)) != 0;
    for (int i = 0; i < half / 64 && !rest; ++i) rest = magnitude[i] != 0;
    if (half_set && (rest || (mantissa & 1))) ++mantissa;
  }
  const double result = std::ldexp(static_cast<double>(mantissa), low - 1074);
  return negative ? -result : result;
}

std::vector<std::uint64_t> ExactSum::words() const {
  // Drop words that only repeat the sign of the word below them.
  std::size_t n = kWords;
  while (n > 0) {
    const std::uint64_t sign = n >= 2 ? (words_[n - 2] >> 63 ? ~0ull : 0) : 0;
    if (words_[n - 1] != sign) break;
    --n;
  }
  return {words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(n)};
}

Result<ExactSum> ExactSum::from_words(std::span<const std::uint64_t> words) {
  if (words.size() > kWords)
    return Error(Code::kCorrupt, "exact sum has " + std::to_string(words.size()) +
                                     " words, expected at most " + std::to_string(kWords));
  ExactSum sum;
  const bool negative = !words.empty() && words.back() >> 63;
  for (std::size_t i = 0; i < kWords; ++i)
    sum.words_[i] = i < words.size() ? words[i] : (negative ? ~0ull : 0);
  return sum;
}

}  // namespace starling
