#pragma once
// CUDA's driver, as far as memory that is mapped: an anonymous file is in the place of a GPU's memory.
// A process maps a piece whole or not at all, as with CUDA.

#include <cstddef>

extern "C" {

using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;

enum CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_SUPPORTED = 801,
};
enum CUmemAllocationType { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum CUmemLocationType { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum CUmemAllocationHandleType {
  CU_MEM_HANDLE_TYPE_NONE = 0,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
};
enum CUmemAllocationGranularity_flags { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0 };
enum CUmemAccess_flags {
  CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
};

struct CUmemLocation {
  CUmemLocationType type;
  int id;
};
// Those of its fields that the plugin sets.
struct CUmemAllocationProp {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
};
struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};

CUresult cuGetErrorName(CUresult error, const char** name);
CUresult cuCtxSynchronize();
CUresult cuMemGetAllocationGranularity(std::size_t* granularity, const CUmemAllocationProp* of,
                                       CUmemAllocationGranularity_flags option);
CUresult cuMemCreate(CUmemGenericAllocationHandle* piece, std::size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle piece);
// STARLING_IMITATION_EXPORT=refused: not supported.
CUresult cuMemExportToShareableHandle(void* file, CUmemGenericAllocationHandle piece,
                                      CUmemAllocationHandleType type, unsigned long long flags);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* piece, void* file,
                                        CUmemAllocationHandleType type);
CUresult cuMemAddressReserve(CUdeviceptr* at, std::size_t bytes, std::size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr at, std::size_t bytes);
CUresult cuMemMap(CUdeviceptr at, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle piece, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr at, std::size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count);

}  // extern "C"
