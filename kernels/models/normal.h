#pragma once
// These are normal numbers from Philox, the same bits on every machine.

#include <cstdint>
#include <span>

namespace starling::kernels {

// Sets out[i] = deviation * normal(seed, stream, first + i),
// by Box and Muller's method. `first` is a multiple of 4.
void fill_normal(std::uint64_t seed, std::uint32_t stream, double deviation, std::uint64_t first,
                 std::span<float> out);

}  // namespace starling::kernels
