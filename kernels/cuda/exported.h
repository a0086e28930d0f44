#pragma once
// Exported memory is memory of a GPU that other processes map: the driver gives each piece a file
// (CUDA Driver API, "Virtual Memory Management"), and frees the memory when the last process has let
// go. A process that dies lets go.

#include <cstddef>
#include <optional>

#include "kernels/device/shared_pages.h"

namespace starling::kernels::cuda {

struct Exported {
  std::byte* at = nullptr;
  SharedPlace place{};  // its `bytes` are a multiple of what the driver maps at once
};

// Takes at least so many bytes, with any content. Nothing: this driver cannot export memory. Throws
// std::bad_alloc if the GPU has no memory left. Threads: any, after cudaSetDevice() of `device`.
std::optional<Exported> take_exported(int device, std::size_t bytes);
// Requires that no kernel of this process works on it.
void give_back(const Exported& piece);

}  // namespace starling::kernels::cuda
