#pragma once
// VirtualMemory is the part of CUDA's driver that gives addresses and the memory behind them separately
// (CUDA Driver API, "Virtual Memory Management"). Nothing here is linked to the driver.

#include <cuda.h>

#include <cstddef>
#include <optional>

namespace starling::kernels::cuda {

struct VirtualMemory {
  decltype(cuMemGetAllocationGranularity)* granularity = nullptr;
  decltype(cuMemCreate)* create = nullptr;
  decltype(cuMemRelease)* release = nullptr;
  decltype(cuMemExportToShareableHandle)* to_file = nullptr;
  decltype(cuMemAddressReserve)* reserve = nullptr;
  decltype(cuMemAddressFree)* free = nullptr;
  decltype(cuMemMap)* map = nullptr;
  decltype(cuMemUnmap)* unmap = nullptr;
  decltype(cuMemSetAccess)* access = nullptr;

  // Returns the bytes that the driver maps at once, for memory of these properties; nothing: it cannot.
  std::optional<std::size_t> grain(const CUmemAllocationProp& properties) const;
  // Lets this device use mapped memory.
  CUresult open(CUdeviceptr at, std::size_t bytes, const CUmemAllocationProp& properties) const;
};

// Null: this driver lacks one of the functions.
const VirtualMemory* virtual_memory();

// Memory of a device; what other processes may do with it is for the caller to say.
CUmemAllocationProp properties_of(int device);

}  // namespace starling::kernels::cuda
