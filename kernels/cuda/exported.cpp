#include "kernels/cuda/exported.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/no_memory.h"

namespace starling::kernels::cuda {
namespace {

constexpr unsigned kSince = 12000;  // CUDA's version whose functions these are

// Finds a function of the driver, to which nothing here is linked; null: it has none.
template <class Function>
Function* driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &result);
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess)
    return reinterpret_cast<Function*>(found);
  cudaGetLastError();  // the error is an answer
  return nullptr;
}

struct Driver {
  decltype(cuMemGetAllocationGranularity)* granularity =
      driver<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  decltype(cuMemCreate)* create = driver<decltype(cuMemCreate)>("cuMemCreate");
  decltype(cuMemRelease)* release = driver<decltype(cuMemRelease)>("cuMemRelease");
  decltype(cuMemExportToShareableHandle)* to_file =
      driver<decltype(cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
  decltype(cuMemAddressReserve)* reserve =
      driver<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(cuMemAddressFree)* free = driver<decltype(cuMemAddressFree)>("cuMemAddressFree");
  decltype(cuMemMap)* map = driver<decltype(cuMemMap)>("cuMemMap");
  decltype(cuMemUnmap)* unmap = driver<decltype(cuMemUnmap)>("cuMemUnmap");
  decltype(cuMemSetAccess)* access = driver<decltype(cuMemSetAccess)>("cuMemSetAccess");

  bool whole() const {
    return granularity != nullptr && create != nullptr && release != nullptr &&
           to_file != nullptr && reserve != nullptr && free != nullptr && map != nullptr &&
           unmap != nullptr && access != nullptr;
  }
};

const Driver& the_driver() {
  static const Driver driver;
  return driver;
}

// Ids of the program's own shared pages count from 1 (kernels/device/shared_pages.cpp).
std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last = std::uint64_t{1} << 63;
  return ++last;
}

CUmemAllocationProp properties(int device) {
  CUmemAllocationProp all{};
  all.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  all.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  all.location.id = device;
  all.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return all;
}

// Maps a piece for this process; null: the driver cannot.
std::byte* mapped(const Driver& driver, CUmemGenericAllocationHandle piece, std::size_t bytes,
                  const CUmemAllocationProp& properties) {
  CUdeviceptr at = 0;
  if (driver.reserve(&at, bytes, 0, 0, 0) != CUDA_SUCCESS) return nullptr;
  if (driver.map(at, bytes, 0, piece, 0) == CUDA_SUCCESS) {
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (driver.access(at, bytes, &access, 1) == CUDA_SUCCESS)
      return reinterpret_cast<std::byte*>(at);
    driver.unmap(at, bytes);
  }
  driver.free(at, bytes);
  return nullptr;
}

}  // namespace

std::optional<Exported> take_exported(int device, std::size_t bytes) {
  const Driver& driver = the_driver();
  if (!driver.whole()) return std::nullopt;
  const CUmemAllocationProp all = properties(device);
  std::size_t grain = 0;
  if (driver.granularity(&grain, &all, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
      grain == 0)
    return std::nullopt;
  const std::size_t whole = (bytes + grain - 1) / grain * grain;
  CUmemGenericAllocationHandle piece = 0;
  const CUresult made = driver.create(&piece, whole, &all, 0);
  if (made == CUDA_ERROR_OUT_OF_MEMORY) throw NoMemory();
  if (made != CUDA_SUCCESS) return std::nullopt;
  int file = -1;
  const bool exported =
      driver.to_file(&file, piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS;
  std::byte* const at = exported ? mapped(driver, piece, whole, all) : nullptr;
  driver.release(piece);  // the mapping and the file hold the memory
  if (at == nullptr) {
    if (exported) ::close(file);
    return std::nullopt;
  }
  ::fcntl(file, F_SETFD, FD_CLOEXEC);
  return Exported{at, {file, 0, next_id(), whole, /*gpu=*/true}};
}

void give_back(const Exported& piece) {
  const Driver& driver = the_driver();
  const auto at = reinterpret_cast<CUdeviceptr>(piece.at);
  const bool given = driver.unmap(at, piece.place.bytes) == CUDA_SUCCESS &&
                     driver.free(at, piece.place.bytes) == CUDA_SUCCESS;
  ::close(piece.place.file);
  if (!given) device_lost("giving back exported memory", cudaErrorUnknown);
}

}  // namespace starling::kernels::cuda
