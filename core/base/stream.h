#pragma once
// A line of a device's work into which a library of others can put some, as NCCL does.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace starling {

// What the emulated device has for a stream: a library that puts work into it counts it here.
struct StreamCounts {
  std::atomic<std::uint64_t> asked{0}, done{0};
  // Where memory of that device, which the host cannot follow, really is. Empty: where it says.
  std::function<std::byte*(const void* at, std::size_t bytes)> real;
};

// Threads: one at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  // All that was put into it is done. Never blocks.
  virtual bool idle() = 0;
  // What such a library takes: a cudaStream_t on a GPU, a StreamCounts on the emulated
  // device, null on the host, where whoever is asked to work does so at once.
  virtual void* native() const = 0;
};

}  // namespace starling
