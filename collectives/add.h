#pragma once
// Integer addition of arrays, one of which lies in a frame and may be unaligned. Sums wrap modulo
// 2^32: what a peer sends must not be undefined behaviour here.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/bytes.h"
#include "core/base/check.h"

namespace starling::collectives {

// out = a + b. `a` may be `out` itself.
inline void add_sums(std::span<std::int32_t> out, std::span<const std::int32_t> a, ByteView b) {
  STARLING_CHECK(out.size() == a.size());
  STARLING_CHECK(b.size() == out.size_bytes());
  const std::uint8_t* in = b.data();
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint32_t x;
    std::memcpy(&x, in + i * sizeof x, sizeof x);
    out[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(a[i]) + x);
  }
}

inline void copy_sums(std::span<std::int32_t> out, ByteView in) {
  STARLING_CHECK(in.size() == out.size_bytes());
  if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
}

}  // namespace starling::collectives
