#include "kernels/cuda/virtual_memory.h"

#include <cuda_runtime.h>

namespace starling::kernels::cuda {
namespace {

constexpr unsigned kSince = 12000;  // CUDA's version whose functions these are

// Finds a function of the driver. False: it has none.
template <class Function>
bool find(const char* name, Function*& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &result);
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess) {
    function = reinterpret_cast<Function*>(found);
    return function != nullptr;
  }
  cudaGetLastError();  // the error is an answer
  return false;
}

std::optional<VirtualMemory> find_all() {
  VirtualMemory all;
  if (find("cuMemGetAllocationGranularity", all.granularity) && find("cuMemCreate", all.create) &&
      find("cuMemRelease", all.release) && find("cuMemExportToShareableHandle", all.to_file) &&
      find("cuMemAddressReserve", all.reserve) && find("cuMemAddressFree", all.free) &&
      find("cuMemMap", all.map) && find("cuMemUnmap", all.unmap) &&
      find("cuMemSetAccess", all.access))
    return all;
  return std::nullopt;
}

}  // namespace

const VirtualMemory* virtual_memory() {
  static const std::optional<VirtualMemory> found = find_all();
  return found ? &*found : nullptr;
}

CUmemAllocationProp properties_of(int device) {
  CUmemAllocationProp all{};
  all.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  all.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  all.location.id = device;
  return all;
}

std::optional<std::size_t> VirtualMemory::grain(const CUmemAllocationProp& properties) const {
  std::size_t grain = 0;
  if (granularity(&grain, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
      grain == 0)
    return std::nullopt;
  return grain;
}

CUresult VirtualMemory::open(CUdeviceptr at, std::size_t bytes,
                             const CUmemAllocationProp& properties) const {
  CUmemAccessDesc all{};
  all.location = properties.location;
  all.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access(at, bytes, &all, 1);
}

}  // namespace starling::kernels::cuda
