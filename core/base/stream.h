#pragma once
// Stream is a line of a device's work into which a foreign library can put some, as NCCL does.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace starling {

// The emulated device has this for a stream: a library that puts work into it counts it here.
struct StreamCounts {
  std::atomic<std::uint64_t> asked{0}, done{0};
  // The real place of memory of that device, which the host cannot follow. Empty: as addressed.
  std::function<std::byte*(const void* at, std::size_t bytes)> real;
};

// Threads: one at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  // Whether all that was put into the stream is done. Never blocks.
  virtual bool idle() = 0;
  // The handle that such a library takes: a cudaStream_t on a GPU, a StreamCounts on the emulated
  // device, null on the host, which does all work at once.
  virtual void* native() const = 0;
};

}  // namespace starling
