#include "kernels/device/lazy_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "core/base/check.h"

namespace starling::kernels {

std::size_t page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::byte* take_pages(std::size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  // Huge pages make a killed worker's memory, hence its sockets, go sooner (design, section 3).
  // Advice only: a kernel without them refuses, which changes nothing else.
  if (bytes >= kHugePage) (void)::madvise(p, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(p);
}

void give_back_pages(std::byte* at, std::size_t bytes) {
  ::munmap(at, bytes);
}

void expect_pages(std::byte* at, std::size_t offset, std::size_t count, bool used) {
  const std::size_t huge = used ? kHugePage : page_bytes();
  const auto base = reinterpret_cast<std::uintptr_t>(at);
  const std::uintptr_t first = (base + offset + huge - 1) / huge * huge;
  const std::uintptr_t end = (base + offset + count) / huge * huge;
  if (first < end)
    (void)::madvise(at + (first - base), end - first, used ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

void prepare_pages(std::byte* at, std::size_t offset, std::size_t count,
                   const std::stop_token& stop) {
  const std::size_t end = offset + count;
  // Each call takes one huge page: the address space is locked meanwhile.
  for (std::size_t from = offset / page_bytes() * page_bytes();
       from < end && !stop.stop_requested(); from = (from / kHugePage + 1) * kHugePage) {
    const std::size_t next = std::min(end, (from / kHugePage + 1) * kHugePage);
    if (::madvise(at + from, next - from, MADV_POPULATE_WRITE) != 0) return;
  }
}

void drop_pages(std::byte* at, Granules::Run run) {
  STARLING_CHECK(::madvise(at + run.offset, run.count, MADV_DONTNEED) == 0);
}

void protect_pages(std::byte* at, Granules::Run run, bool there) {
  STARLING_CHECK(
      ::mprotect(at + run.offset, run.count, there ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
}

void release_pages(std::byte* at, std::size_t offset, std::size_t count, Pages pages) {
  const std::size_t page = page_bytes();
  const std::size_t end = offset + count;
  const std::size_t first_whole = std::min(end, (offset + page - 1) / page * page);
  const std::size_t last_whole = std::max(first_whole, end / page * page);
  std::memset(at + offset, 0, first_whole - offset);
  std::memset(at + last_whole, 0, end - last_whole);
  if (last_whole == first_whole) return;
  // The pages read as zeros after this; if the kernel refuses, clear them by hand.
  const int advice = pages == Pages::kShared ? MADV_REMOVE : MADV_DONTNEED;
  if (::madvise(at + first_whole, last_whole - first_whole, advice) != 0)
    std::memset(at + first_whole, 0, last_whole - first_whole);
}

}  // namespace starling::kernels
