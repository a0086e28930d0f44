#include "kernels/grid/lazy_array.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "core/base/check.h"

namespace starling::kernels {
namespace {

constexpr std::size_t kHugePage = 2u << 20;

std::size_t page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

LazyPages::LazyPages(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(p);
  // Huge pages make a killed worker's memory, hence its sockets, go sooner (design, section 3).
  // Advice only: a kernel without them refuses, which changes nothing else.
  if (bytes >= kHugePage) (void)::madvise(p, bytes, MADV_HUGEPAGE);
}

LazyPages::~LazyPages() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

void LazyPages::prepare(std::size_t offset, std::size_t count, const std::stop_token& stop) const {
  STARLING_CHECK(offset <= bytes_);
  STARLING_CHECK(count <= bytes_ - offset);
  const std::size_t end = offset + count;
  // A huge page a call: the address space is locked meanwhile.
  for (std::size_t at = offset / page_bytes() * page_bytes(); at < end && !stop.stop_requested();
       at = (at / kHugePage + 1) * kHugePage) {
    const std::size_t next = std::min(end, (at / kHugePage + 1) * kHugePage);
    if (::madvise(data_ + at, next - at, MADV_POPULATE_WRITE) != 0) return;
  }
}

void LazyPages::release(std::size_t offset, std::size_t count) {
  STARLING_CHECK(offset <= bytes_);
  STARLING_CHECK(count <= bytes_ - offset);
  const std::size_t page = page_bytes();
  const std::size_t end = offset + count;
  const std::size_t first_whole = std::min(end, (offset + page - 1) / page * page);
  const std::size_t last_whole = std::max(first_whole, end / page * page);
  std::memset(data_ + offset, 0, first_whole - offset);
  std::memset(data_ + last_whole, 0, end - last_whole);
  if (last_whole == first_whole) return;
  // Private anonymous pages read as zeros after this; if the kernel refuses, clear them by hand.
  if (::madvise(data_ + first_whole, last_whole - first_whole, MADV_DONTNEED) != 0)
    std::memset(data_ + first_whole, 0, last_whole - first_whole);
}

}  // namespace starling::kernels
