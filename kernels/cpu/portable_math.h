#pragma once
// These functions compute exp, log, cos and sin of double from additions, multiplications
// and divisions alone: the C library's own differ in the last bit between its versions and
// between CPUs. Within about 2 units in the last place, far below what float keeps of them.

#include <bit>
#include <cmath>
#include <cstdint>

namespace starling::kernels {

static inline double portable_exp(double x) {
  if (!(x > -708)) return x == x ? 0.0 : x;
  if (x > 709) return HUGE_VAL;
  const double n = std::nearbyint(x * 1.4426950408889634);
  // This is x - n ln 2, with ln 2 in two parts; the first has so few bits that n times it is exact.
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double y = 1;
  for (int k = 14; k >= 1; --k) y = 1 + y * r * (1.0 / k);  // |r| < 0.35: r^15/15! < 2e-19
  const auto bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52;
  return y * std::bit_cast<double>(bits);
}

// Requires x normal and positive; else it gives what std::log gives.
static inline double portable_log(double x) {
  if (!(x >= 0x1p-1022) || x > 1.7e308) return std::log(x);
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int e = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | (1023ull << 52));
  if (m > 1.4142135623730951) {
    m /= 2;
    ++e;
  }
  // log m = 2 atanh(s); |s| < 0.172: the terms left out are below 1e-17 of the sum.
  const double s = (m - 1) / (m + 1), q = s * s;
  double y = 0;
  for (int k = 21; k >= 1; k -= 2) y = y * q + 2.0 / k;
  return e * 6.93147180559945286227e-01 + y * s;
}

// Computes cos and sin of 2 pi u, 0 <= u < 1.
static inline void portable_cos_sin(double u, double& c, double& s) {
  const double quarter = std::floor(u * 4 + 0.5);               // nearest quarter turn, 0..4
  const double a = (u - quarter / 4) * 6.28318530717958647692;  // |a| <= pi/4
  const double q = a * a;
  double x = 1, y = 1;
  for (int k = 18; k >= 2; k -= 2) x = 1 - x * q * (1.0 / ((k - 1) * k));
  for (int k = 19; k >= 3; k -= 2) y = 1 - y * q * (1.0 / ((k - 1) * k));
  y *= a;
  switch (static_cast<int>(quarter) & 3) {
    case 0:
      c = x, s = y;
      break;
    case 1:
      c = -y, s = x;
      break;
    case 2:
      c = -x, s = -y;
      break;
    default:
      c = y, s = -x;
  }
}

}  // namespace starling::kernels
