#pragma once
// Shared pages are zeroed memory of the host that other processes can map: an anonymous file. They
// cost something only where touched; the kernel frees them when the last process has let go.

#include <cstddef>
#include <cstdint>

namespace starling::kernels {

// Other processes map the memory with mmap() of this file at `offset`, in bytes; a GPU's memory as
// its driver maps the file (cuMemImportFromShareableHandle()), which takes all of it at once.
struct SharedPlace {
  int file = -1;  // valid until the memory is given back
  std::uint64_t offset = 0;
  std::uint64_t id = 0;     // of the file; never used again by this process
  std::uint64_t bytes = 0;  // of the whole file
  bool gpu = false;

  SharedPlace after(std::uint64_t more) const { return {file, offset + more, id, bytes, gpu}; }
};

// SharedPages gives the memory back at its end. Threads: none; different threads may use different
// bytes.
class SharedPages {
 public:
  explicit SharedPages(std::size_t bytes);  // throws std::bad_alloc as the containers do
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  std::byte* data() const { return at_; }
  SharedPlace place() const { return place_; }

 private:
  const std::size_t bytes_;
  SharedPlace place_;
  std::byte* at_ = nullptr;
};

}  // namespace starling::kernels
