#pragma once
// Kernels that are not matrix products, completed with a product to a table.

#include "kernels/cpu/table.h"

namespace starling::kernels {

KernelTable vector_kernels_avx2(const char* isa, void (*gemm)(const Gemm&));

}  // namespace starling::kernels
