#pragma once
// Precision: which floating-point numbers something is of.

#include <cstddef>
#include <cstdint>

namespace starling {

enum class Precision : std::uint8_t { kFp32, kBf16, kFp16 };

// Returns the bytes of one number.
constexpr std::size_t bytes_of(Precision precision) {
  return precision == Precision::kFp32 ? 4 : 2;
}

}  // namespace starling
