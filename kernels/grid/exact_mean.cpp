#include "kernels/grid/exact_mean.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace starling::kernels {

void WideSum::add(float x) {
  STARLING_CHECK(std::isfinite(x));
  bits_.add(x);
}

void WideSum::add_total(std::int32_t total, std::int16_t exponent) {
  STARLING_CHECK(exponent >= kLowest);
  STARLING_CHECK(exponent <= 128);
  bits_.add_total(total, exponent);
}

float WideSum::mean(std::uint32_t micro_batches) const {
  return bits_.mean(micro_batches);
}

void SquareSum::add(std::span<const float> values) {
  while (!values.empty()) {
    if (terms_ == kTermsMax) flush();
    const auto n = std::min<std::size_t>(values.size(), kTermsMax - terms_);
    for (std::size_t i = 0; i < n; ++i) {
      const FloatParts p(values[i]);
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
  const auto e = static_cast<std::size_t>(unit - kLowest + 1);  // the one with this unit
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
    // 32-bit halves are doubles without rounding.
    for (int half = 0; half < 4; ++half) {
      const std::uint64_t word = words[2 * static_cast<std::size_t>(e) + half / 2];
      const std::uint64_t bits = half % 2 == 0 ? word & 0xffffffffu : word >> 32;
      if (bits != 0) sum.add(std::ldexp(static_cast<double>(bits), unit + 32 * half));
    }
  }
  return sum;
}

}  // namespace starling::kernels
