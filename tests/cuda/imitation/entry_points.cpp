// The driver's functions as the runtime finds them. What is mapped is the device's memory.

#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/cuda/imitation/memory.h"

namespace imitation = starling::imitation;

namespace {

const void* address(CUdeviceptr at) {
  return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(at));
}

// STARLING_IMITATION_DRIVER = NAME:N: the N-th call of this function by this process is refused; "granule": of
// cuMemCreate for memory that is not exported.
bool refused(const std::string& name) {
  static const char* const text = std::getenv("STARLING_IMITATION_DRIVER");
  static const std::string order = text == nullptr ? "" : text;
  static std::atomic<int> left = order.empty() ? 0 : std::atoi(order.c_str() + order.find(':') + 1);
  return order.starts_with(name + ":") && --left == 0;
}

CUresult create(CUmemGenericAllocationHandle* piece, std::size_t bytes,
                const CUmemAllocationProp* properties, unsigned long long flags) {
  const bool exports = properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  if (refused(exports ? "cuMemCreate" : "granule") || !imitation::has_room(bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  return cuMemCreate(piece, bytes, properties, flags);
}

CUresult to_file(void* file, CUmemGenericAllocationHandle piece, CUmemAllocationHandleType type,
                 unsigned long long flags) {
  if (refused("cuMemExportToShareableHandle")) return CUDA_ERROR_NOT_SUPPORTED;
  return cuMemExportToShareableHandle(file, piece, type, flags);
}

CUresult reserve(CUdeviceptr* at, std::size_t bytes, std::size_t alignment, CUdeviceptr wanted,
                 unsigned long long flags) {
  if (refused("cuMemAddressReserve")) return CUDA_ERROR_OUT_OF_MEMORY;
  return cuMemAddressReserve(at, bytes, alignment, wanted, flags);
}

CUresult set_access(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* access,
                    std::size_t count) {
  if (refused("cuMemSetAccess")) return CUDA_ERROR_OUT_OF_MEMORY;
  return cuMemSetAccess(at, bytes, access, count);
}

CUresult map(CUdeviceptr at, std::size_t bytes, std::size_t offset,
             CUmemGenericAllocationHandle piece, unsigned long long flags) {
  if (refused("cuMemMap")) return CUDA_ERROR_OUT_OF_MEMORY;
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
      {"cuMemCreate", as_pointer(create)},
      {"cuMemRelease", as_pointer(cuMemRelease)},
      {"cuMemExportToShareableHandle", as_pointer(to_file)},
      {"cuMemAddressReserve", as_pointer(reserve)},
      {"cuMemAddressFree", as_pointer(cuMemAddressFree)},
      {"cuMemMap", as_pointer(map)},
      {"cuMemUnmap", as_pointer(unmap)},
      {"cuMemSetAccess", as_pointer(set_access)},
  };
  const auto found = functions.find(symbol);
  *function = found == functions.end() ? nullptr : found->second;
  *result = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
