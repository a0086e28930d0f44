// The driver's functions of include/cuda.h. Also a library of its own, which a script's process opens in the
// place of libcuda.so.1 (STARLING_LIBCUDA).

#include <cuda.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr std::size_t kGrain = 1u << 16;
constexpr int kPattern = 0xa5;  // what memory holds at first

// A handle is a file of this process, counted from 1.
int file_of(CUmemGenericAllocationHandle piece) {
  return static_cast<int>(piece) - 1;
}

CUmemGenericAllocationHandle handle_of(int file) {
  return static_cast<CUmemGenericAllocationHandle>(file) + 1;
}

void* address(CUdeviceptr at) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(at));
}

CUresult told(bool done) {
  return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuGetErrorName(CUresult error, const char** name) {
  switch (error) {
    case CUDA_SUCCESS:
      *name = "CUDA_SUCCESS";
      return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE:
      *name = "CUDA_ERROR_INVALID_VALUE";
      return CUDA_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      return CUDA_SUCCESS;
    case CUDA_ERROR_NOT_SUPPORTED:
      *name = "CUDA_ERROR_NOT_SUPPORTED";
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxSynchronize() {
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(std::size_t* granularity, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *granularity = kGrain;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* piece, std::size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  if (bytes == 0 || bytes % kGrain != 0 || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  const int file = ::memfd_create("imitated-gpu", MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const at = ::ftruncate(file, static_cast<off_t>(bytes)) == 0
                       ? ::mmap(nullptr, bytes, PROT_WRITE, MAP_SHARED, file, 0)
                       : MAP_FAILED;
  if (at == MAP_FAILED) {
    ::close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::memset(at, kPattern, bytes);
  ::munmap(at, bytes);
  *piece = handle_of(file);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle piece) {
  return told(::close(file_of(piece)) == 0);
}

CUresult cuMemExportToShareableHandle(void* file, CUmemGenericAllocationHandle piece,
                                      CUmemAllocationHandleType, unsigned long long) {
  const char* const wanted = std::getenv("STARLING_IMITATION_EXPORT");
  if (wanted != nullptr && std::string_view(wanted) == "refused") return CUDA_ERROR_NOT_SUPPORTED;
  const int copy = ::dup(file_of(piece));
  std::memcpy(file, &copy, sizeof copy);
  return told(copy >= 0);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* piece, void* file,
                                        CUmemAllocationHandleType) {
  const int copy = ::dup(static_cast<int>(reinterpret_cast<std::uintptr_t>(file)));
  *piece = handle_of(copy);
  return told(copy >= 0);
}

CUresult cuMemAddressReserve(CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr,
                             unsigned long long) {
  if (bytes == 0 || bytes % kGrain != 0) return CUDA_ERROR_INVALID_VALUE;
  void* const reserved =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<std::uintptr_t>(reserved);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, std::size_t bytes) {
  return told(::munmap(address(at), bytes) == 0);
}

CUresult cuMemMap(CUdeviceptr at, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle piece, unsigned long long) {
  struct stat found {};
  if (offset != 0 || ::fstat(file_of(piece), &found) != 0 ||
      static_cast<std::size_t>(found.st_size) != bytes)
    return CUDA_ERROR_INVALID_VALUE;
  return told(::mmap(address(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file_of(piece), 0) !=
              MAP_FAILED);
}

CUresult cuMemUnmap(CUdeviceptr at, std::size_t bytes) {
  return told(::mmap(address(at), bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED);
}

CUresult cuMemSetAccess(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count) {
  if (count != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      access->location.id != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const bool writes = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return told(::mprotect(address(at), bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ) == 0);
}
