#pragma once
// The weight of an element in the fifth proof lane (core/base/proof.h). A compiler for another
// processor reads this too.

#include <cstdint>

namespace starling {

// The fifth lane is the sum of weight_of(i) * x_i modulo 2^64 over the segment's elements, i counted
// through the whole layout. It is linear, so the lanes of contributions add up to that of the total,
// and odd and below 2^31, so that no single wrong element leaves it as it was, and of several wrong
// ones next to none. Made when a gradient is added, from the integers as they are in registers; so
// a bit that flips in the sums from then on shows.
constexpr std::uint32_t weight_of(std::uint32_t element) {
  return (element * 0x9e3779b1u >> 1) | 1;
}

}  // namespace starling
