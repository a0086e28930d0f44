#pragma once
// Shared pages are zeroed memory of the host that other processes can map: anonymous files. They
// cost something only where touched; the kernel frees them when the last process has let go.

#include <cstddef>
#include <cstdint>
#include <optional>

namespace starling::kernels {

// Threads of all: any.
std::byte* take_shared_pages(std::size_t bytes);  // throws std::bad_alloc as the containers do
// Returns false if no such piece begins there; nothing is done then.
bool give_back_shared_pages(std::byte* at);

// Other processes map the memory with mmap() of this file at `offset`.
struct SharedPlace {
  int file = -1;  // valid until the memory is given back
  std::uint64_t offset = 0;
  std::uint64_t id = 0;  // of the piece; never used again
};
// Returns nothing if [at, at + bytes) does not lie in one piece that was taken here.
std::optional<SharedPlace> shared_place(const void* at, std::size_t bytes);

}  // namespace starling::kernels
