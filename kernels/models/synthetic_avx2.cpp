#include "kernels/models/synthetic_block.h"

namespace starling::kernels::synthetic {

#ifdef __AVX2__
void (*avx2_block_gradient())(unsigned, float, const float*, float*, unsigned) {
  return __builtin_cpu_supports("avx2") ? block_gradient : nullptr;
}
#else
void (*avx2_block_gradient())(unsigned, float, const float*, float*, unsigned) {
  return nullptr;
}
#endif

}  // namespace starling::kernels::synthetic
