#pragma once
// These are the fast matrix products; table.cpp decides which CPU may call which.

#include "kernels/cpu/table.h"

namespace starling::kernels {

void gemm_avx2(const Gemm& g);
void gemm_avx512(const Gemm& g);

}  // namespace starling::kernels
