#pragma once
// CudaQueue works on the grid on a GPU, in the order of a stream.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/device.h"
#include "kernels/cuda/grid.h"
#include "kernels/device/device.h"

namespace starling::kernels::cuda {

// Threads: one at a time. Borrows the device.
class CudaQueue : public Queue {
 public:
  explicit CudaQueue(CudaDevice& device);
  ~CudaQueue() override;  // waits
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  // For work that is no job: it comes between the calls of this queue.
  cudaStream_t stream() const { return stream_; }

  void zero(void* at, std::size_t bytes) override;
  void copy_in(void* to, ByteView from) override;
  void copy_out(std::span<std::uint8_t> to, const void* from) override;
  void copy(void* to, const void* from, std::size_t bytes) override;

  void add(const AddJob& job) override;
  void gather(const GatherJob& job) override;
  void weigh(const WeighJob& job) override;
  void sum(const SumJob& job) override;
  void wide_means(const WideJob& job) override;
  void squares(const SquaresJob& job) override;
  void apply(const ApplyJob& job) override;  // without an application's optimizer
  void publish(const PublishJob& job) override;
  void multiple(const MultipleJob& job) override;
  void difference(const DifferenceJob& job) override;
  void norm(const NormJob& job) override;
  void local_step(const LocalStepJob& job) override;  // without an application's optimizer
  void checksum(const ChecksumJob& job) override;
  void digest(const DigestJob& job) override;

  void wait() override;
  void mark() override;
  void wait_marked() override;

 private:
  // Makes room for so many bytes of uploads, padded to room_of() each: none of them waits then.
  void make_room(std::size_t bytes);
  // Copies to the device's memory; the host's bytes may be gone when the call returns.
  const std::byte* uploaded(const void* from, std::size_t bytes);
  Listed uploaded(const Segments& segments);
  Word* scratch(std::size_t words);

  CudaDevice& device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr, marked_ = nullptr;
  // upload_ has what was uploaded since the last wait(): the host writes to this
  // pinned memory, from where it goes to the same place of uploads_ on the device.
  Memory upload_, uploads_;
  std::size_t upload_end_ = 0;
  Memory scratch_;  // used by one job after the other
};

}  // namespace starling::kernels::cuda
