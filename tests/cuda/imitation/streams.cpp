#include "tests/cuda/imitation/streams.h"

#include <cuda_runtime.h>

#include <atomic>
#include <set>
#include <utility>

#include "tests/cuda/imitation/errors.h"
#include "tests/cuda/imitation/imitation.h"
#include "tests/cuda/imitation/order.h"

namespace starling::imitation {
namespace {

struct Streams {
  std::mutex mutex;
  std::set<CUstream_st*> all;
  CUstream_st legacy;  // the stream of null handles
  std::atomic<Work> work =
      second_chosen("STARLING_IMITATION_WORK", "at_once", "late") ? Work::kLate : Work::kAtOnce;
  // Of all streams whose work is done late: it may go from one stream to another and back.
  std::recursive_mutex late_mutex;
};
Streams& streams() {
  static auto* const streams = new Streams;
  return *streams;
}

}  // namespace

Work set_work(Work work) {
  finish_all();
  return streams().work.exchange(work);
}

bool late() {
  return streams().work == Work::kLate;
}

CUstream_st* stream_of(cudaStream_t stream) {
  if (stream == nullptr) return &streams().legacy;
  const std::lock_guard guard(streams().mutex);
  return streams().all.contains(stream) ? stream : nullptr;
}

std::unique_lock<std::recursive_mutex> lock(CUstream_st& stream) {
  return std::unique_lock(late() ? streams().late_mutex : stream.mutex);
}

void add_work(CUstream_st& stream, Task task) {
  if (Capture* const capture = stream.capture.get(); capture != nullptr) {
    capture->nodes.push_back(std::move(task));
    capture->clocks[&stream][&stream] = capture->nodes.size();
  } else if (late()) {
    stream.waiting.push_back(std::move(task));
  } else {
    task();
  }
}

void finish(CUstream_st& stream) {
  while (!stream.waiting.empty()) {
    const Task task = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    task();
  }
}

void finish_all() {
  if (!late()) return;
  const std::lock_guard one_at_a_time(streams().late_mutex);
  std::set<CUstream_st*> all;
  {
    const std::lock_guard guard(streams().mutex);
    all = streams().all;
  }
  finish(streams().legacy);
  for (CUstream_st* stream : all) finish(*stream);
}

}  // namespace starling::imitation

namespace imitation = starling::imitation;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  if (stream == nullptr || flags > cudaStreamNonBlocking)
    return imitation::told(cudaErrorInvalidValue);
  auto made = std::make_unique<CUstream_st>();
  const std::lock_guard guard(imitation::streams().mutex);
  imitation::streams().all.insert(made.get());
  *stream = made.release();
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr || imitation::stream_of(stream) == nullptr)
    return imitation::told(cudaErrorInvalidResourceHandle);
  {
    const auto guard = imitation::lock(*stream);
    if (stream->capture != nullptr) return imitation::told(cudaErrorStreamCaptureUnsupported);
    imitation::finish(*stream);
  }
  {
    const std::lock_guard guard(imitation::streams().mutex);
    imitation::streams().all.erase(stream);
  }
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CUstream_st* const at = imitation::stream_of(stream);
  if (at == nullptr) return imitation::told(cudaErrorInvalidResourceHandle);
  const auto guard = imitation::lock(*at);
  if (at->capture != nullptr) {
    at->capture->invalidated = true;
    return imitation::told(cudaErrorStreamCaptureUnsupported);
  }
  imitation::finish(*at);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  CUstream_st* const at = imitation::stream_of(stream);
  if (at == nullptr) return imitation::told(cudaErrorInvalidResourceHandle);
  const auto guard = imitation::lock(*at);
  if (at->capture != nullptr) {
    at->capture->invalidated = true;
    return imitation::told(cudaErrorStreamCaptureUnsupported);
  }
  if (at->waiting.empty()) return cudaSuccess;
  imitation::finish(*at);  // for the next question
  return imitation::told(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize() {
  if (imitation::refused_by_capture()) return imitation::told(cudaErrorStreamCaptureUnsupported);
  imitation::finish_all();
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  CUstream_st* const at = imitation::stream_of(stream);
  if (at == nullptr) return imitation::told(cudaErrorInvalidResourceHandle);
  if (function == nullptr) return imitation::told(cudaErrorInvalidValue);
  const auto guard = imitation::lock(*at);
  imitation::add_work(*at, [function, data] { function(data); });
  return cudaSuccess;
}
