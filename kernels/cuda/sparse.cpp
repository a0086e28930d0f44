#include "kernels/cuda/sparse.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/no_memory.h"

namespace starling::kernels::cuda {
namespace {

// False: the device has no memory left.
bool done(CUresult result) {
  if (result == CUDA_SUCCESS) return true;
  if (result != CUDA_ERROR_OUT_OF_MEMORY) device_lost("mapping memory", cudaErrorUnknown);
  return false;
}

// A driver may know the functions, and not give memory so (on some virtual GPUs). That there is none left is no
// answer to that.
bool gives_granules(const VirtualMemory& driver, const CUmemAllocationProp& properties,
                    std::size_t grain) {
  CUmemGenericAllocationHandle piece = 0;
  const CUresult made = driver.create(&piece, grain, &properties, 0);
  if (made == CUDA_SUCCESS) driver.release(piece);
  return made == CUDA_SUCCESS || made == CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

std::unique_ptr<Sparse> Sparse::reserve(int device, std::size_t bytes) {
  const VirtualMemory* const driver = virtual_memory();
  if (driver == nullptr) return nullptr;
  const auto grain = driver->grain(properties_of(device));
  if (!grain) return nullptr;
  static const bool gives = gives_granules(*driver, properties_of(device), *grain);
  if (!gives) return nullptr;
  const std::size_t whole = Granules(bytes, *grain).bytes();
  CUdeviceptr at = 0;
  if (driver->reserve(&at, whole, 0, 0, 0) != CUDA_SUCCESS) return nullptr;
  return std::unique_ptr<Sparse>(new Sparse(*driver, device, at, bytes, *grain));
}

Sparse::Sparse(const VirtualMemory& driver, int device, CUdeviceptr at, std::size_t bytes,
               std::size_t grain)
    : driver_(driver), properties_(properties_of(device)), at_(at), granules_(bytes, grain) {}

Sparse::~Sparse() {
  for (const Granules::Run& run : granules_.mapped()) unmap_all(run);
  if (driver_.free(at_, granules_.bytes()) != CUDA_SUCCESS)
    device_lost("giving back addresses", cudaErrorUnknown);
}

std::vector<Granules::Run> Sparse::back(std::size_t offset, std::size_t count) {
  const MutexLock lock(mutex_);
  const Granules::Taken taken = granules_.take(offset, count);
  std::vector<Granules::Run> got = taken.reused;
  for (std::size_t i = 0; i < taken.fresh.size(); ++i) {
    std::size_t mapped = 0;
    if (map(taken.fresh[i], mapped)) {
      got.push_back(taken.fresh[i]);
      continue;
    }
    // Nobody can have seen what is taken back, so it need not wait for those who keep memory.
    for (std::size_t j = 0; j < i; ++j) unmap_all(taken.fresh[j]);
    if (mapped > 0) unmap_all({taken.fresh[i].offset, mapped});
    granules_.undo(taken, offset, count);
    throw NoMemory();
  }
  return got;
}

// Each granule is memory of its own, as the driver unmaps what was mapped at once, and not a part of it.
bool Sparse::map(Granules::Run granules, std::size_t& mapped) const {
  const std::size_t grain = granules_.grain();
  for (; mapped < granules.count; mapped += grain) {
    CUmemGenericAllocationHandle piece = 0;
    if (!done(driver_.create(&piece, grain, &properties_, 0))) return false;
    const bool there = done(driver_.map(at_ + granules.offset + mapped, grain, 0, piece, 0));
    driver_.release(piece);  // the mapping holds the memory
    if (!there) return false;
  }
  return done(driver_.open(at_ + granules.offset, granules.count, properties_));
}

Granules::Given Sparse::release(std::size_t offset, std::size_t count) {
  const MutexLock lock(mutex_);
  return granules_.give(offset, count);
}

void Sparse::unmap(Granules::Run granules, std::uint64_t give) {
  const MutexLock lock(mutex_);
  for (const Granules::Run& run : granules_.take_unused(granules, give)) unmap_all(run);
}

void Sparse::unmap_all(Granules::Run granules) const {
  const std::size_t grain = granules_.grain();
  for (std::size_t done = 0; done < granules.count; done += grain)
    if (driver_.unmap(at_ + granules.offset + done, grain) != CUDA_SUCCESS)
      device_lost("giving back memory", cudaErrorUnknown);
}

}  // namespace starling::kernels::cuda
