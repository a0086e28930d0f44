#pragma once
// What tests may ask of the imitated cuBLASLt beyond the library's own functions.

#include <cstdint>

extern "C" {
// As long as it is not 0: this epilogue (as in a description) is not supported.
void fake_cublas_lt_refuse(std::uint32_t epilogue);
// As long as it is not negative: products by this algorithm fail.
void fake_cublas_lt_break(int algorithm);
// How often an algorithm ran.
int fake_cublas_lt_runs(int algorithm);
// How often an algorithm was proposed.
int fake_cublas_lt_proposals(int algorithm);
// Handles, descriptions, layouts and preferences that exist.
int fake_cublas_lt_living();
}

namespace starling::kernels::cuda::fake {

// Algorithms, in the order of proposals.
inline constexpr int kReduced = 3;  // adds parts of k in a second step; only if that is allowed
inline constexpr int kSplit = 4;    // adds parts of k, and says that it does not reduce
inline constexpr int kSlow = 2;
inline constexpr int kAligned = 0;  // wants addresses and lines at multiples of 16 bytes
inline constexpr int kAny = 1;
inline constexpr int kAlgorithms = 5;
inline constexpr std::size_t kVersion = 139900;

}  // namespace starling::kernels::cuda::fake
