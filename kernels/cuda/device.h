#pragma once
// CudaDevice is a GPU as a device: its memory, its queues.

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "core/base/mutex.h"
#include "kernels/cuda/exported.h"
#include "kernels/cuda/sparse.h"
#include "kernels/device/device.h"

namespace starling::kernels::cuda {

// Sets what device_lost() (kernels/cuda/launch.h) does in this process from now on, instead
// of a line and an exit code; `end` must not return. Call it before there are other threads.
void when_lost(std::function<void(const std::string& why)> end);

// Threads: any. Its memory costs the same wherever it is touched, so advice on that is
// ignored; released memory stays taken, but for sparse memory (kernels/cuda/sparse.h).
class CudaDevice : public Device {
 public:
  // index: CUDA's number of the device, which must exist. exports: exported() memory is for other
  // processes.
  explicit CudaDevice(int index, bool exports = false);
  ~CudaDevice() override;  // all memory was given back

  // "cuda 9.0, 132 SMs, NVIDIA H100 80GB HBM3"
  const std::string& name() const override { return name_; }
  bool host_memory() const override { return false; }
  std::unique_ptr<Queue> make_queue() override;    // a CudaQueue (kernels/cuda/queue.h)
  std::shared_ptr<Stream> make_stream() override;  // of the highest priority
  void enter_thread() override { use(); }
  std::string uuid() const override;

  // Directs the CUDA calls of the calling thread to this device from now on.
  void use() const;

 private:
  std::byte* take(std::size_t bytes, bool pinned) override;
  std::byte* take_sparse(std::size_t bytes) override;
  void back(std::byte* at, std::size_t offset, std::size_t count) override;
  void unback(std::byte* at, Granules::Run granules, std::uint64_t give) override;
  std::byte* take_exported(std::size_t bytes) override;
  std::optional<SharedPlace> place_of(const std::byte* at) const override;
  void give_back(std::byte* at, std::size_t bytes) override;
  void prepare(std::byte*, std::size_t, std::size_t, const std::stop_token&) override {}
  void release(std::byte* at, std::size_t offset, std::size_t count) override;
  bool is_pinned(const std::byte* at) const;
  std::shared_ptr<Sparse> sparse_at(const std::byte* at) const;  // null: other memory begins there
  void zero(std::byte* at, std::size_t bytes, bool pinned);

  const int index_;
  const bool exports_;
  std::string name_;
  cudaStream_t stream_ = nullptr;  // for zeros
  mutable Mutex mutex_;
  // By where pieces begin.
  std::set<const std::byte*> own_ STARLING_GUARDED_BY(mutex_);
  std::set<const std::byte*> pinned_ STARLING_GUARDED_BY(mutex_);
  std::map<const std::byte*, Exported> exported_ STARLING_GUARDED_BY(mutex_);
  std::map<const std::byte*, std::shared_ptr<Sparse>> sparse_ STARLING_GUARDED_BY(mutex_);
};

// Waits until the stream has done what it was asked for. Does not spin:
// others need the processor. `event` was made with cudaEventBlockingSync.
void wait_for(cudaStream_t stream, cudaEvent_t event);
cudaEvent_t make_event();

}  // namespace starling::kernels::cuda
