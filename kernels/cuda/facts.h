#pragma once
// Which GPUs there are, and whether the kernels were built for them.

#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace starling::kernels::cuda {

// The index of GPU number `gpu`, counted around. Errors: kBadInput  there is none, in CUDA's own words,
// or the library has no kernels for its compute capability.
Result<int> usable_gpu(std::uint32_t gpu);

// What the library was built for and what it finds, in one line for people.
std::string facts();

}  // namespace starling::kernels::cuda
