// The driver's functions as the runtime finds them. What is mapped is the device's memory.

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <string>

#include "tests/cuda/imitation/memory.h"

namespace imitation = starling::imitation;

namespace {

const void* address(CUdeviceptr at) {
  return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(at));
}

CUresult map(CUdeviceptr at, std::size_t bytes, std::size_t offset,
             CUmemGenericAllocationHandle piece, unsigned long long flags) {
  const CUresult result = cuMemMap(at, bytes, offset, piece, flags);
  if (result == CUDA_SUCCESS) imitation::note_mapped(address(at), bytes);
  return result;
}

CUresult unmap(CUdeviceptr at, std::size_t bytes) {
  imitation::forget_mapped(address(at));
  return cuMemUnmap(at, bytes);
}

template <class Function>
void* as_pointer(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  static const std::map<std::string, void*> functions{
      {"cuMemGetAllocationGranularity", as_pointer(cuMemGetAllocationGranularity)},
      {"cuMemCreate", as_pointer(cuMemCreate)},
      {"cuMemRelease", as_pointer(cuMemRelease)},
      {"cuMemExportToShareableHandle", as_pointer(cuMemExportToShareableHandle)},
      {"cuMemAddressReserve", as_pointer(cuMemAddressReserve)},
      {"cuMemAddressFree", as_pointer(cuMemAddressFree)},
      {"cuMemMap", as_pointer(map)},
      {"cuMemUnmap", as_pointer(unmap)},
      {"cuMemSetAccess", as_pointer(cuMemSetAccess)},
  };
  const auto found = functions.find(symbol);
  *function = found == functions.end() ? nullptr : found->second;
  *result = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
