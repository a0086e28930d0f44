#pragma once
// Packed sums have as many bits an element as the largest of its block needs. A job with a coarse grid sends them instead of
// words of 32 bits.
//
// Packed blocks are a byte of width for each, then the elements of each in that width, two's complement. Element i of a block
// lies in lane i % 8 of eight lanes, which are interleaved word by word; a lane has its elements one after the other, lowest
// bit first. A block of width w has 32 w bytes; a block of zeros has none.

#include <cstdint>
#include <span>

#include "core/base/bytes.h"

namespace starling::collectives {

// Appends whole blocks.
void pack(std::span<const std::int32_t> sums, Bytes& to);

// Takes the blocks of `sums` from the front of `from`. Returns false where bytes are missing, or a block is wider than
// width_max; `sums` has any content then.
bool unpack(ByteView& from, std::uint32_t width_max, std::span<std::int32_t> sums);

// Returns the width that holds any sum of `count` integers of the grid, which have `bits` bits and are above -2^(bits - 1);
// 0 for none.
std::uint32_t width_of_sums(std::uint32_t bits, std::uint64_t count);

}  // namespace starling::collectives
