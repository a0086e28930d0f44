#pragma once
// What starling_ptx.h imitates. All lanes of a warp call together; which lane has which element is that of
// the PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix".

#include <cstdint>

namespace starling::imitation {

// d += a b, a [16,16] and b [16,8] of halves, d [16,8] of fp32. Each sum is made in ascending order of k
// and starts with d; a device adds in an order and with roundings that nothing specifies.
void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);

// Four matrices of 8 rows of 16 bytes; lane i gives the address of row i % 8 of matrix i / 8.
void load_matrix_x4(std::uint32_t (&r)[4], const void* shared, bool transposed);

// 16 bytes, which are in shared memory after finish_copies() and hold a pattern until then.
void copy_async_16(void* shared, const void* global);
struct LateCopy;
void make_copy(const LateCopy& copy);

}  // namespace starling::imitation
