#pragma once
// Facts say which GPUs there are, and whether the kernels were built for them.

#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace starling::kernels::cuda {

// Returns the index of GPU number `gpu`, counted around. Errors: kBadInput  there is
// none, in CUDA's words, or the library has no kernels for its compute capability.
Result<int> usable_gpu(std::uint32_t gpu);

// Says what the library was built for and what it finds, in one line for people.
std::string facts();

}  // namespace starling::kernels::cuda
