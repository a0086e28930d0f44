#include "kernels/cuda/exported.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/no_memory.h"
#include "kernels/cuda/virtual_memory.h"

namespace starling::kernels::cuda {
namespace {

// Ids of the program's own shared pages count from 1 (kernels/device/shared_pages.cpp).
std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last = std::uint64_t{1} << 63;
  return ++last;
}

// Maps a piece for this process; null: the driver cannot.
std::byte* mapped(const VirtualMemory& driver, CUmemGenericAllocationHandle piece,
                  std::size_t bytes, const CUmemAllocationProp& properties) {
  CUdeviceptr at = 0;
  if (driver.reserve(&at, bytes, 0, 0, 0) != CUDA_SUCCESS) return nullptr;
  if (driver.map(at, bytes, 0, piece, 0) == CUDA_SUCCESS) {
    if (driver.open(at, bytes, properties) == CUDA_SUCCESS) return reinterpret_cast<std::byte*>(at);
    driver.unmap(at, bytes);
  }
  driver.free(at, bytes);
  return nullptr;
}

}  // namespace

std::optional<Exported> take_exported(int device, std::size_t bytes) {
  const VirtualMemory* const found = virtual_memory();
  if (found == nullptr) return std::nullopt;
  const VirtualMemory& driver = *found;
  CUmemAllocationProp all = properties_of(device);
  all.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const auto grain = driver.grain(all);
  if (!grain) return std::nullopt;
  const std::size_t whole = (bytes + *grain - 1) / *grain * *grain;
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
  const VirtualMemory& driver = *virtual_memory();
  const auto at = reinterpret_cast<CUdeviceptr>(piece.at);
  const bool given = driver.unmap(at, piece.place.bytes) == CUDA_SUCCESS &&
                     driver.free(at, piece.place.bytes) == CUDA_SUCCESS;
  ::close(piece.place.file);
  if (!given) device_lost("giving back exported memory", cudaErrorUnknown);
}

}  // namespace starling::kernels::cuda
