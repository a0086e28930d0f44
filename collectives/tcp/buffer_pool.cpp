#include "collectives/tcp/buffer_pool.h"

#include <sys/mman.h>

#include <cstdint>
#include <utility>

namespace starling::collectives {

namespace {

constexpr std::size_t kSmallBytes = 16 * 1024;  // the allocator is as fast up to here
constexpr std::size_t kHugePage = 2u << 20;

// Large buffers in huge pages: fewer faults, and a killed process gives them back 50 times faster,
// so that its peers see the end of file early (docs/design.md, section 3).
void prefer_huge_pages(const Bytes& reserved) {
  if (reserved.capacity() < kHugePage) return;
  const auto first = reinterpret_cast<std::uintptr_t>(reserved.data());
  const auto begin = (first + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (first + reserved.capacity()) / kHugePage * kHugePage;
  // Advice: without it the buffer is only slower.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

std::shared_ptr<Bytes> BufferPool::get(std::size_t n) {
  if (n <= kSmallBytes) return std::make_shared<Bytes>(n);
  std::unique_ptr<Bytes> buffer;
  {
    const MutexLock lock(mutex_);
    // Frames of a step have few sizes, so the last one to come back mostly fits.
    for (auto it = free_.rbegin(); it != free_.rend() && !buffer; ++it) {
      if ((*it)->capacity() < n || (*it)->capacity() > 2 * n) continue;
      buffer = std::move(*it);
      free_bytes_ -= buffer->capacity();
      free_.erase(std::next(it).base());
    }
  }
  if (!buffer) {
    buffer = std::make_unique<Bytes>();
    buffer->reserve(n);
    prefer_huge_pages(*buffer);
  }
  buffer->resize(n);
  auto pool = weak_from_this();
  return {buffer.release(), [pool](Bytes* bytes) {
            std::unique_ptr<Bytes> owned(bytes);
            if (const auto alive = pool.lock()) alive->put(std::move(owned));
          }};
}

void BufferPool::put(std::unique_ptr<Bytes> buffer) {
  const MutexLock lock(mutex_);
  if (free_bytes_ + buffer->capacity() > bytes_max_) return;
  free_bytes_ += buffer->capacity();
  free_.push_back(std::move(buffer));
}

}  // namespace starling::collectives
