// The imitated device: its bounds, and what a launch on it may be.

#include <cuda_runtime.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/cuda/imitation/errors.h"
#include "tests/cuda/imitation/imitation.h"
#include "tests/cuda/imitation/records.h"
#include "tests/cuda/imitation/streams.h"

namespace imitation = starling::imitation;

namespace starling::imitation {
namespace {

constexpr int kVersion = 13000;  // of driver and runtime: CUDA 13.0
constexpr int kMajor = 9, kMinor = 0, kProcessors = 4, kPciBus = 1;
constexpr unsigned kThreadsPerBlock = 1024;
constexpr dim3 kBlockMax{1024, 1024, 64}, kGridMax{2147483647, 65535, 65535};
constexpr std::size_t kShared = 48 * 1024, kSharedIfAsked = 227 * 1024,
                      kSharedPerProcessor = 228 * 1024;
// A kernel's static shared memory counts, too, and g++ does not say how much that is: at most so much.
constexpr std::size_t kStatic = 8 * 1024;
constexpr std::size_t kL2 = 50 * 1024 * 1024;

// How much dynamic shared memory kernels were allowed.
struct Allowed {
  std::mutex mutex;
  std::map<const void*, std::size_t> by_kernel;
};
Allowed& allowed() {
  static auto* const allowed = new Allowed;
  return *allowed;
}

bool within(dim3 size, dim3 max) {
  return size.x - 1 < max.x && size.y - 1 < max.y && size.z - 1 < max.z;  // and none is zero
}

cudaError_t check(const cudaLaunchConfig_t& config, const void* kernel) {
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  if (config.numAttrs != 0) return cudaErrorNotSupported;
  const dim3 block = config.blockDim;
  if (!within(config.gridDim, kGridMax) || !within(block, kBlockMax) ||
      block.x * block.y * block.z > kThreadsPerBlock)
    return cudaErrorInvalidConfiguration;
  if (config.dynamicSmemBytes <= kShared - kStatic) return cudaSuccess;
  const std::lock_guard guard(allowed().mutex);
  const auto found = allowed().by_kernel.find(kernel);
  const bool enough =
      found != allowed().by_kernel.end() && config.dynamicSmemBytes <= found->second;
  return enough ? cudaSuccess : cudaErrorInvalidValue;
}

void run(const Grid& grid) {
  const std::uint64_t blocks = std::uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
  record_launch(grid.kernel, blocks, grid.threads.x * grid.threads.y * grid.threads.z);
  const AtWork at_work;
  run_grid(grid);
}

// STARLING_IMITATION_FAILURE = COUNT:FILE: the first process that has launched so many kernels, and so
// makes the file, has lost its device.
bool fails_now() {
  static const char* const order = std::getenv("STARLING_IMITATION_FAILURE");
  if (order == nullptr) return false;
  static std::atomic<long> left = std::strtol(order, nullptr, 10);
  static std::atomic<bool> failed = false;
  const char* const file = std::strchr(order, ':');
  if (failed || --left > 0 || file == nullptr) return failed;
  const int made = ::open(file + 1, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made >= 0) ::close(made);
  failed = made >= 0;
  return failed;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const Call& call) {
  if (in_kernel()) fail("a kernel launches a kernel");
  CUstream_st* const stream = stream_of(config.stream);
  if (stream == nullptr) return told(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = check(config, call.kernel); error != cudaSuccess)
    return told(error);
  if (fails_now()) return told(cudaErrorIllegalAddress);
  const Grid grid{call.kernel, config.gridDim, config.blockDim, config.dynamicSmemBytes,
                  call.run,    call.arguments};
  const auto guard = lock(*stream);
  do_or_add(
      *stream, [&] { run(grid); },
      [&] {
        return [later = grid, arguments = call.copy(call.arguments)]() mutable {
          later.arguments = arguments.get();
          run(later);
        };
      });
  return cudaSuccess;
}

}  // namespace starling::imitation

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (kernel == nullptr) return imitation::told(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
    return imitation::told(value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<std::size_t>(value) > imitation::kSharedIfAsked)
    return imitation::told(cudaErrorInvalidValue);
  const std::lock_guard guard(imitation::allowed().mutex);
  imitation::allowed().by_kernel[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return imitation::told(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaSetDeviceFlags(unsigned) {
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return imitation::told(cudaErrorInvalidDevice);
  cudaDeviceProp p{};
  std::strcpy(p.name, "imitated GPU");
  std::memcpy(p.uuid.bytes, "imitated GPU", 12);
  std::size_t free = 0;
  cudaMemGetInfo(&free, &p.totalGlobalMem);
  p.sharedMemPerBlock = imitation::kShared;
  p.sharedMemPerBlockOptin = imitation::kSharedIfAsked;
  p.sharedMemPerMultiprocessor = imitation::kSharedPerProcessor;
  p.totalConstMem = 65536;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = warpSize;
  p.maxThreadsPerBlock = imitation::kThreadsPerBlock;
  const auto set = [](int(&to)[3], dim3 from) {
    to[0] = static_cast<int>(from.x);
    to[1] = static_cast<int>(from.y);
    to[2] = static_cast<int>(from.z);
  };
  set(p.maxThreadsDim, imitation::kBlockMax);
  set(p.maxGridSize, imitation::kGridMax);
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  p.major = imitation::kMajor;
  p.minor = imitation::kMinor;
  p.multiProcessorCount = imitation::kProcessors;
  p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.streamPrioritiesSupported = 1;
  p.asyncEngineCount = 2;
  p.pciBusID = imitation::kPciBus;
  p.memoryBusWidth = 64;
  p.l2CacheSize = static_cast<int>(imitation::kL2);
  *properties = p;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, device); error != cudaSuccess)
    return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = p.maxGridSize[0];
      break;
    case cudaDevAttrMaxGridDimY:
      *value = p.maxGridSize[1];
      break;
    case cudaDevAttrMaxGridDimZ:
      *value = p.maxGridSize[2];
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(p.sharedMemPerBlock);
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrPciBusId:
      *value = p.pciBusID;
      break;
    case cudaDevAttrL2CacheSize:
      *value = p.l2CacheSize;
      break;
    case cudaDevAttrUnifiedAddressing:
      *value = p.unifiedAddressing;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(p.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
    default:
      return imitation::told(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  if (device != 0 || size < 13) return imitation::told(cudaErrorInvalidValue);
  std::snprintf(id, static_cast<std::size_t>(size), "0000:%02X:00.0", imitation::kPciBus);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = imitation::kVersion;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = imitation::kVersion;
  return cudaSuccess;
}
