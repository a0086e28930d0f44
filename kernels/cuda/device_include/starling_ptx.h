#pragma once
// These instructions of tensor cores and asynchronous copies have no functions in CUDA C++;
// from compute capability 8.0 on. A warp's lanes call mma_*() and load_matrix_x4() together.
//
// Lane 4 g + t (g = lane / 4, t = lane % 4) has these elements, two halves in a word, the first one low
// (PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix"):
//   a [16,16]  words: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..), as (row, columns)
//   b [16,8]   words: rows 2t, 2t + 1 of column g; rows 2t + 8, 2t + 9 of column g
//   d [16,8]   floats: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)

#include <cstdint>

namespace starling::kernels::cuda {

// d += a b, products exact, sums in fp32.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_f16(float (&d)[4], const std::uint32_t (&a)[4],
                                        const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Packs two halves in a word, the first one low; each to the nearest, ties to even.
__device__ __forceinline__ std::uint32_t pack_bf16(float first, float second) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
}

__device__ __forceinline__ std::uint32_t pack_f16(float first, float second) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
}
__device__ __forceinline__ float float_of_f16(std::uint16_t half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}

// Computes 2^x within 2^-22 of it; results below the normal numbers are 0. exp2f() spends
// three more instructions on those.
__device__ __forceinline__ float exp2_of_normal(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

// Loads four 8 by 8 matrices of halves (a row: 16 bytes at a multiple of 16). Lane i gives row i
// % 8 of matrix i / 8's address and gets, of matrix j, elements 2t and 2t + 1 of row g in r[j].
__device__ __forceinline__ void load_matrix_x4(std::uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)))
               : "memory");
}
// Loads the same, but elements 2t and 2t + 1 of column g.
__device__ __forceinline__ void load_matrix_x4_transposed(std::uint32_t (&r)[4],
                                                          const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)))
               : "memory");
}

// Copies 16 bytes from global to shared memory, both at a multiple of 16, past the first cache.
// The asking thread sees them after copy_async_wait(); others of its block after a barrier too.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(__cvta_generic_to_global(global))
               : "memory");
}
// Ends a group of copies.
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most the kLeft latest groups of this thread are missing.
template <int kLeft>
__device__ __forceinline__ void copy_async_wait() {
  static_assert(kLeft >= 0);
  asm volatile("cp.async.wait_group %0;" : : "n"(kLeft) : "memory");
}

}  // namespace starling::kernels::cuda
