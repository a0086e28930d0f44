#pragma once
// Sparse is a range of a GPU's addresses whose memory is mapped granule by granule, where somebody
// uses it (Memory::back()). Kernels, copies and graphs see one array.

#include <cstddef>
#include <memory>
#include <vector>

#include "core/base/mutex.h"
#include "kernels/cuda/virtual_memory.h"
#include "kernels/device/granules.h"

namespace starling::kernels::cuda {

// Threads: any, after cudaSetDevice() of its device; of one range of bytes one at a time.
class Sparse {
 public:
  // Null: this driver cannot, or does not give memory by granules.
  static std::unique_ptr<Sparse> reserve(int device, std::size_t bytes);
  // Requires that the device works on nothing of it.
  ~Sparse();
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;

  std::byte* data() const { return reinterpret_cast<std::byte*>(at_); }
  // Maps what is not mapped of these bytes. Returns what they got, with any content. Throws NoMemory, and
  // nothing has changed then; any other failure of the driver loses the device.
  std::vector<Granules::Run> back(std::size_t offset, std::size_t count);
  // Ends a use that back() began for the same bytes; all stays mapped until unmap().
  Granules::Given release(std::size_t offset, std::size_t count);
  // Unmaps those of these granules that nobody has used since that release.
  void unmap(Granules::Run granules, std::uint64_t give);

 private:
  Sparse(const VirtualMemory& driver, int device, CUdeviceptr at, std::size_t bytes,
         std::size_t grain);
  // False: there is no memory. mapped: bytes, also then.
  bool map(Granules::Run granules, std::size_t& mapped) const STARLING_REQUIRES(mutex_);
  void unmap_all(Granules::Run granules) const STARLING_REQUIRES(mutex_);

  const VirtualMemory& driver_;
  const CUmemAllocationProp properties_;
  const CUdeviceptr at_;

  Mutex mutex_;  // held while granules are mapped and unmapped
  Granules granules_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling::kernels::cuda
