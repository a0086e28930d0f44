#pragma once

#include <new>

namespace starling::kernels::cuda {

// Is thrown where the GPU, and not the host, has no memory left.
class NoMemory : public std::bad_alloc {
 public:
  const char* what() const noexcept override { return "out of memory of the GPU"; }
};

}  // namespace starling::kernels::cuda
