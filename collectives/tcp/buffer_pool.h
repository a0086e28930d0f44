#pragma once
// Receive buffers that come back when the last reader drops them. A fresh buffer costs a page fault
// per 4 KiB and zeroing on top of the copy out of the socket.

#include <cstddef>
#include <memory>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/mutex.h"

namespace starling::collectives {

// Threads: any. Buffers may outlive the pool's owner.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // Bytes kept at most: what a worker has in flight in a step, not what it can ever receive.
  explicit BufferPool(std::size_t bytes_max = 8u << 20) : bytes_max_(bytes_max) {}

  // A buffer of n bytes with any contents.
  std::shared_ptr<Bytes> get(std::size_t n);

 private:
  void put(std::unique_ptr<Bytes> buffer);

  const std::size_t bytes_max_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Bytes>> free_ STARLING_GUARDED_BY(mutex_);
  std::size_t free_bytes_ STARLING_GUARDED_BY(mutex_) = 0;
};

}  // namespace starling::collectives
