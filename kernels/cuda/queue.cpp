#include "kernels/cuda/queue.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/device/job_checks.h"

namespace starling::kernels::cuda {
namespace {

constexpr std::size_t kUploadBytesMin = 64 * 1024;
constexpr std::size_t kScratchBytesMin = 64 * 1024;

constexpr std::size_t room_of(std::size_t bytes) {
  constexpr std::size_t kBoundary = 256;
  return (bytes + kBoundary - 1) / kBoundary * kBoundary;
}

constexpr std::size_t bytes_of(const Segments& segments) {
  return segments.count * sizeof(*segments.list);
}

}  // namespace

CudaQueue::CudaQueue(CudaDevice& device) : device_(device) {
  device_.use();
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  event_ = make_event();
  marked_ = make_event();
}

CudaQueue::~CudaQueue() {
  wait();
  check(cudaEventDestroy(event_), "ending an event");
  check(cudaEventDestroy(marked_), "ending an event");
  check(cudaStreamDestroy(stream_), "ending a stream");
}

void CudaQueue::zero(void* at, std::size_t bytes) {
  device_.use();
  if (bytes > 0) check(cudaMemsetAsync(at, 0, bytes, stream_), "zeroing memory");
}

void CudaQueue::copy_in(void* to, ByteView from) {
  device_.use();
  if (!from.empty())
    check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyDefault, stream_), "copying in");
}

void CudaQueue::copy_out(std::span<std::uint8_t> to, const void* from) {
  device_.use();
  if (!to.empty())
    check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDefault, stream_), "copying out");
}

void CudaQueue::copy(void* to, const void* from, std::size_t bytes) {
  device_.use();
  if (bytes > 0)
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copying on the device");
}

void CudaQueue::add(const AddJob& job) {
  kernels::check(job);
  device_.use();
  const Listed listed = uploaded(job.segments);
  cuda::add(stream_, job, listed, scratch(scratch_words(job, listed)));
}

void CudaQueue::gather(const GatherJob& job) {
  kernels::check(job);
  device_.use();
  cuda::gather(stream_, job);
}

void CudaQueue::weigh(const WeighJob& job) {
  kernels::check(job);
  device_.use();
  const Listed listed = uploaded(job.segments);
  cuda::weigh(stream_, job, listed, scratch(scratch_words(job, listed)));
}

void CudaQueue::sum(const SumJob& job) {
  kernels::check(job);
  device_.use();
  cuda::sum(stream_, job);
}

void CudaQueue::wide_means(const WideJob& job) {
  kernels::check(job);
  device_.use();
  cuda::wide_means(stream_, job);
}

void CudaQueue::squares(const SquaresJob& job) {
  kernels::check(job);
  device_.use();
  const Listed listed = uploaded(job.segments);
  cuda::squares(stream_, job, listed, scratch(scratch_words(job, listed)));
}

void CudaQueue::apply(const ApplyJob& job) {
  kernels::check(job);
  STARLING_CHECK(job.numbers.mine == nullptr);
  device_.use();
  const Listed listed = uploaded(job.segments);
  cuda::apply(stream_, job, listed, scratch(scratch_words(job, listed)));
}

void CudaQueue::publish(const PublishJob& job) {
  kernels::check(job);
  device_.use();
  cuda::publish(stream_, job, uploaded(job.segments));
}

void CudaQueue::multiple(const MultipleJob& job) {
  kernels::check(job);
  device_.use();
  cuda::multiple(stream_, job);
}

void CudaQueue::difference(const DifferenceJob& job) {
  kernels::check(job);
  device_.use();
  cuda::difference(stream_, job);
}

void CudaQueue::norm(const NormJob& job) {
  kernels::check(job);
  device_.use();
  cuda::norm(stream_, job, scratch(scratch_words(job)));
}

void CudaQueue::local_step(const LocalStepJob& job) {
  kernels::check(job);
  STARLING_CHECK(job.numbers.mine == nullptr);
  device_.use();
  cuda::local_step(stream_, job);
}

void CudaQueue::checksum(const ChecksumJob& job) {
  kernels::check(job);
  device_.use();
  const std::size_t seeds_bytes = job.segments.count * sizeof(*job.seeds);
  make_room(room_of(bytes_of(job.segments)) + room_of(seeds_bytes));
  const Listed listed = uploaded(job.segments);
  const std::byte* seeds = uploaded(job.seeds, seeds_bytes);
  cuda::checksum(stream_, job, listed, reinterpret_cast<const std::uint64_t*>(seeds));
}

void CudaQueue::digest(const DigestJob& job) {
  kernels::check(job);
  device_.use();
  const Listed listed = uploaded(job.segments);
  cuda::digest(stream_, job, listed, scratch(scratch_words(job, listed)));
}

void CudaQueue::wait() {
  device_.use();
  wait_for(stream_, event_);
  upload_end_ = 0;
}

void CudaQueue::mark() {
  device_.use();
  check(cudaEventRecord(marked_, stream_), "recording an event");
}

void CudaQueue::wait_marked() {
  device_.use();
  check(cudaEventSynchronize(marked_), "waiting");
}

void CudaQueue::make_room(std::size_t bytes) {
  if (bytes <= upload_.size() - upload_end_) return;
  wait();
  if (bytes <= upload_.size()) return;
  const std::size_t more = std::max({kUploadBytesMin, 2 * upload_.size(), bytes});
  upload_ = device_.pinned(more);
  uploads_ = device_.allocate(more);
}

const std::byte* CudaQueue::uploaded(const void* from, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  make_room(room_of(bytes));
  std::byte* const staged = upload_.data() + upload_end_;
  std::byte* const there = uploads_.data() + upload_end_;
  upload_end_ += room_of(bytes);
  std::memcpy(staged, from, bytes);
  check(cudaMemcpyAsync(there, staged, bytes, cudaMemcpyDefault, stream_), "copying a list");
  return there;
}

Listed CudaQueue::uploaded(const Segments& segments) {
  Listed listed{.count = segments.count};
  for (std::uint32_t i = 0; i < segments.count; ++i)
    listed.largest = std::max(listed.largest, segments.list[i].count);
  listed.list = reinterpret_cast<const SegmentBlocks*>(uploaded(segments.list, bytes_of(segments)));
  return listed;
}

Word* CudaQueue::scratch(std::size_t words) {
  const std::size_t bytes = words * sizeof(Word);
  if (bytes > scratch_.size()) {
    wait();
    scratch_ = device_.allocate(std::max({kScratchBytesMin, 2 * scratch_.size(), bytes}));
  }
  return reinterpret_cast<Word*>(scratch_.data());
}

}  // namespace starling::kernels::cuda
