#include "kernels/cuda/device.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "core/base/check.h"
#include "core/base/exit.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/no_memory.h"
#include "kernels/cuda/queue.h"

namespace starling::kernels::cuda {

namespace {

std::function<void(const std::string& why)>& end_of_process() {
  static std::function<void(const std::string& why)> end;
  return end;
}

class CudaStream : public Stream {
 public:
  explicit CudaStream(CudaDevice& device) : device_(device) {
    device_.use();
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
          "making a stream");
  }
  ~CudaStream() override {
    device_.use();
    check(cudaStreamDestroy(stream_), "ending a stream");
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  bool idle() override {
    device_.use();
    const cudaError_t error = cudaStreamQuery(stream_);
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // the error is an answer
      return false;
    }
    check(error, "asking a stream");
    return true;
  }
  void* native() const override { return stream_; }

 private:
  CudaDevice& device_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

void when_lost(std::function<void(const std::string& why)> end) {
  end_of_process() = std::move(end);
}

void device_lost(const char* what, cudaError_t error) {
  const std::string why = std::string("lost the GPU: ") + what + ": " + cudaGetErrorString(error);
  if (end_of_process()) end_of_process()(why);
  std::fprintf(stderr, "starling: %s\n", why.c_str());
  std::fflush(stderr);
  ::_exit(kExitInternal);
}

cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming),
        "making an event");
  return event;
}

void wait_for(cudaStream_t stream, cudaEvent_t event) {
  check(cudaEventRecord(event, stream), "recording an event");
  check(cudaEventSynchronize(event), "waiting");
}

CudaDevice::CudaDevice(int index, bool exports) : index_(index), exports_(exports) {
  use();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "asking for properties");
  name_ = "cuda " + std::to_string(properties.major) + "." + std::to_string(properties.minor) +
          ", " + std::to_string(properties.multiProcessorCount) + " SMs, " + properties.name;
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}

CudaDevice::~CudaDevice() {
  STARLING_CHECK(own_.empty());
  STARLING_CHECK(pinned_.empty());
  STARLING_CHECK(exported_.empty());
  STARLING_CHECK(sparse_.empty());
  use();
  check(cudaStreamDestroy(stream_), "ending a stream");
}

void CudaDevice::use() const {
  thread_local int used = -1;
  if (used == index_) return;
  check(cudaSetDevice(index_), "choosing the device");
  used = index_;
}

std::unique_ptr<Queue> CudaDevice::make_queue() {
  return std::make_unique<CudaQueue>(*this);
}

std::shared_ptr<Stream> CudaDevice::make_stream() {
  return std::make_shared<CudaStream>(*this);
}

std::byte* CudaDevice::take(std::size_t bytes, bool pinned) {
  use();
  void* taken = nullptr;
  const cudaError_t error =
      pinned ? cudaHostAlloc(&taken, bytes, cudaHostAllocPortable | cudaHostAllocMapped)
             : cudaMalloc(&taken, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the error is an answer, which no later call may get
    if (pinned) throw std::bad_alloc();
    throw NoMemory();
  }
  check(error, "taking memory");
  auto* const at = static_cast<std::byte*>(taken);
  zero(at, bytes, pinned);
  const MutexLock lock(mutex_);
  (pinned ? pinned_ : own_).insert(at);
  return at;
}

std::byte* CudaDevice::take_sparse(std::size_t bytes) {
  use();
  std::shared_ptr<Sparse> sparse = Sparse::reserve(index_, bytes);
  if (!sparse) return take(bytes, /*pinned=*/false);
  std::byte* const at = sparse->data();
  const MutexLock lock(mutex_);
  sparse_[at] = std::move(sparse);
  return at;
}

std::shared_ptr<Sparse> CudaDevice::sparse_at(const std::byte* at) const {
  const MutexLock lock(mutex_);
  const auto piece = sparse_.find(at);
  return piece == sparse_.end() ? nullptr : piece->second;
}

void CudaDevice::back(std::byte* at, std::size_t offset, std::size_t count) {
  const std::shared_ptr<Sparse> sparse = sparse_at(at);
  if (!sparse) return;
  use();
  for (const Granules::Run& run : sparse->back(offset, count))
    zero(at + run.offset, run.count, /*pinned=*/false);
}

void CudaDevice::unback(std::byte* at, Granules::Run granules, std::uint64_t give) {
  const std::shared_ptr<Sparse> sparse = sparse_at(at);
  if (!sparse) return;
  use();
  sparse->unmap(granules, give);
}

std::byte* CudaDevice::take_exported(std::size_t bytes) {
  use();
  const auto piece = exports_ ? cuda::take_exported(index_, bytes) : std::nullopt;
  if (!piece) return take(bytes, /*pinned=*/false);
  zero(piece->at, bytes, /*pinned=*/false);
  const MutexLock lock(mutex_);
  exported_[piece->at] = *piece;
  return piece->at;
}

std::optional<SharedPlace> CudaDevice::place_of(const std::byte* at) const {
  const MutexLock lock(mutex_);
  const auto piece = exported_.find(at);
  if (piece == exported_.end()) return std::nullopt;
  return piece->second.place;
}

std::string CudaDevice::uuid() const {
  int count = 0;
  check(cudaGetDeviceCount(&count), "counting devices");
  if (count == 1) return {};
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index_), "asking for properties");
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof properties.uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

void CudaDevice::give_back(std::byte* at, std::size_t) {
  use();
  std::optional<Exported> exported;
  std::shared_ptr<Sparse> sparse;
  {
    const MutexLock lock(mutex_);
    if (const auto piece = sparse_.find(at); piece != sparse_.end()) {
      sparse = std::move(piece->second);
      sparse_.erase(piece);
    }
    if (const auto piece = exported_.find(at); piece != exported_.end()) {
      exported = piece->second;
      exported_.erase(piece);
    }
  }
  if (exported || sparse) {
    check(cudaDeviceSynchronize(), "waiting");  // as cudaFree() does
    if (exported) cuda::give_back(*exported);
    return;
  }
  const bool pinned = is_pinned(at);
  {  // before it is free: then another thread may be given the same address
    const MutexLock lock(mutex_);
    STARLING_CHECK((pinned ? pinned_ : own_).erase(at) == 1);
  }
  check(pinned ? cudaFreeHost(at) : cudaFree(at), "giving back memory");
}

void CudaDevice::release(std::byte* at, std::size_t offset, std::size_t count) {
  const std::shared_ptr<Sparse> sparse = sparse_at(at);
  if (!sparse) return zero(at + offset, count, is_pinned(at));
  const Granules::Given given = sparse->release(offset, count);
  for (const Granules::Run& run : given.shared) zero(at + run.offset, run.count, /*pinned=*/false);
  retire(at, given);
}

bool CudaDevice::is_pinned(const std::byte* at) const {
  const MutexLock lock(mutex_);
  return pinned_.contains(at);
}

void CudaDevice::zero(std::byte* at, std::size_t bytes, bool pinned) {
  if (pinned) {
    std::memset(at, 0, bytes);
    return;
  }
  use();
  check(cudaMemsetAsync(at, 0, bytes, stream_), "zeroing memory");
  const cudaEvent_t event = make_event();
  wait_for(stream_, event);
  check(cudaEventDestroy(event), "ending an event");
}

}  // namespace starling::kernels::cuda
