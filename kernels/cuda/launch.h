#pragma once
// launch() starts kernels, and check() handles CUDA's errors. Every launch is a plain function call
// and not `<<<>>>`, so that a compiler without CUDA reads these sources too (tests/cuda/imitation).

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace starling::kernels::cuda {

// Ends the process with one line, "starling: lost the GPU: WHAT: CUDA's words", and kExitInternal:
// after an error that is no answer to a question, memory on the device cannot be trusted.
[[noreturn]] void device_lost(const char* what, cudaError_t error);

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) device_lost(what, error);
}

// shared: bytes of dynamic shared memory. Arguments become exactly the kernel's parameters.
template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared,
            void (*kernel)(Parameters...), Arguments&&... arguments) {
  // Without this, dynamic and static shared memory have 48 KiB together, and no code here knows how
  // much of that is static.
  if (shared > 0)
    check(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
        "shared memory of a kernel");
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "a launch");
}

}  // namespace starling::kernels::cuda
