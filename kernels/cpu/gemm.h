#pragma once
// The fast matrix products; which CPU may call which is decided in table.cpp.

#include "kernels/cpu/table.h"

namespace starling::kernels {

void gemm_avx2(const Gemm& g);
void gemm_avx512(const Gemm& g);

}  // namespace starling::kernels
