#pragma once
// Packed sums: of each block as many bits an element as its largest one needs. What a job with a coarse grid sends instead
// of words of 32 bits.
//
// Of so many blocks: a byte of width for each, then of each block its elements in that width, two's complement. Element i of
// a block lies in lane i % 8 of eight, which are interleaved word by word; in its lane element after element, lowest bit
// first. A block of width w has 32 w bytes; one of zeros has none.

#include <cstdint>
#include <span>

#include "core/base/bytes.h"

namespace starling::collectives {

// Appends whole blocks.
void pack(std::span<const std::int32_t> sums, Bytes& to);

// Takes so many blocks from the front of `from`. Returns false where they are not there, or one is wider than width_max;
// `sums` is any then.
bool unpack(ByteView& from, std::uint32_t width_max, std::span<std::int32_t> sums);

// Returns the width that holds any sum of so many integers of `bits` bits but the lowest of these, -2^(bits - 1): sums of the
// grid. 0 of none.
std::uint32_t width_of_sums(std::uint32_t bits, std::uint64_t count);

}  // namespace starling::collectives
