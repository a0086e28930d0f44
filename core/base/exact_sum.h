#pragma once
// Exact sums of floating-point numbers: a fixed-point integer wide enough for every finite double,
// so the order of adding does not matter (Kulisch accumulator; Kulisch and Miranker, 1981).

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"

namespace starling {

// Threads: none; a value. Holds up to 2^62 terms.
class ExactSum {
 public:
  // Adds a finite double exactly. Requires std::isfinite(x).
  void add(double x);
  // Adds x * x exactly, x a float (the square of a float is a double without rounding).
  void add(const ExactSum& other);

  // The sum, rounded once to the nearest double (ties to even).
  double value() const;

  // Canonical form: equal sums give equal words; empty for zero. For the wire.
  std::vector<std::uint64_t> words() const;
  static Result<ExactSum> from_words(std::span<const std::uint64_t> words);

  bool operator==(const ExactSum& other) const { return words() == other.words(); }

 private:
  // Bits 2^-1074 (lowest) to 2^1023 of a double, 62 bits of carry room and a sign.
  static constexpr std::size_t kWords = 36;
  std::array<std::uint64_t, kWords> words_{};  // two's complement, little-endian
};

}  // namespace starling
