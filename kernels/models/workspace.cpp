#include <sys/mman.h>

#include <new>

#include "kernels/device/lazy_pages.h"
#include "kernels/models/model.h"

namespace starling::kernels {

Workspace::Workspace(std::size_t floats, std::uint32_t sequences)
    : floats_(floats), sequences_(sequences) {
  // The mapping has one page more than needed, so that a huge-page
  // boundary lies inside; untouched pages take no memory.
  mapped_ = (floats * sizeof(float) + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  address = (address + kHugePage - 1) / kHugePage * kHugePage;
  data_ = reinterpret_cast<float*>(address);
  // Advice only: without huge pages everything works, slower.
  static_cast<void>(madvise(data_, mapped_ - kHugePage, MADV_HUGEPAGE));
}

Workspace::~Workspace() {
  munmap(mapping_, mapped_);
}

}  // namespace starling::kernels
