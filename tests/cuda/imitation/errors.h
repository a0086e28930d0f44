#pragma once
// The last error of each thread.

#include "tests/cuda/imitation/runtime.h"

namespace starling::imitation {

// Keeps an error for cudaGetLastError() and returns it.
cudaError_t told(cudaError_t error);

}  // namespace starling::imitation
