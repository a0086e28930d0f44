#pragma once
// These kernels are not matrix products; a product completes them to a table.

#include "kernels/cpu/table.h"

namespace starling::kernels {

KernelTable vector_kernels_avx2(const char* isa, void (*gemm)(const Gemm&));

}  // namespace starling::kernels
