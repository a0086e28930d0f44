#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>

#include "tests/cuda/imitation/errors.h"
#include "tests/cuda/imitation/streams.h"

namespace imitation = starling::imitation;

namespace starling::imitation {
namespace {

// Records of an event are numbered from 1. Outlives the event while a stream has to do with it.
struct Progress {
  std::atomic<std::uint64_t> asked{0}, reached{0};
  std::atomic<CUstream_st*> stream{nullptr};  // of the latest record
  std::atomic<std::int64_t> nanoseconds{0};   // when it was reached
};

void reach(Progress& progress, std::uint64_t record) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  progress.nanoseconds = std::chrono::nanoseconds(now).count();
  progress.reached = record;
}

// Does a stream's work until the record is reached. Requires lock() of a stream if work is done late.
void await(const Progress& progress, std::uint64_t record) {
  while (progress.reached < record) {
    CUstream_st& stream = *progress.stream;
    if (stream.waiting.empty()) return;  // another thread does that very work
    const Task task = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    task();
  }
}

}  // namespace
}  // namespace starling::imitation

struct CUevent_st {
  unsigned flags = 0;
  std::shared_ptr<imitation::Progress> progress = std::make_shared<imitation::Progress>();
  // If it was last recorded in a capture: which, and what came before.
  std::shared_ptr<imitation::Capture> capture;
  imitation::Clock clock;
};

namespace starling::imitation {
namespace {

struct Events {
  std::mutex mutex;
  std::set<CUevent_st*> all;
};
Events& events() {
  static auto* const events = new Events;
  return *events;
}

bool known(cudaEvent_t event) {
  const std::lock_guard guard(events().mutex);
  return events().all.contains(event);
}

// A captured stream, or one that becomes one, after an event of a capture.
cudaError_t join(CUstream_st& stream, const CUevent_st& event) {
  if (event.capture != nullptr && event.capture->ended) return cudaErrorInvalidValue;
  if (event.capture == nullptr) {
    stream.capture->invalidated = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (stream.capture != nullptr && stream.capture != event.capture) {
    stream.capture->invalidated = event.capture->invalidated = true;
    return cudaErrorStreamCaptureMerge;
  }
  stream.capture = event.capture;
  Clock& clock = event.capture->clocks[&stream];
  for (const auto& [of, nodes] : event.clock) clock[of] = std::max(clock[of], nodes);
  return cudaSuccess;
}

}  // namespace
}  // namespace starling::imitation

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (event == nullptr || flags > 7) return imitation::told(cudaErrorInvalidValue);
  auto made = std::make_unique<CUevent_st>();
  made->flags = flags;
  const std::lock_guard guard(imitation::events().mutex);
  imitation::events().all.insert(made.get());
  *event = made.release();
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  {
    const std::lock_guard guard(imitation::events().mutex);
    if (imitation::events().all.erase(event) == 0)
      return imitation::told(cudaErrorInvalidResourceHandle);
  }
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CUstream_st* const at = imitation::stream_of(stream);
  if (at == nullptr || !imitation::known(event))
    return imitation::told(cudaErrorInvalidResourceHandle);
  const auto guard = imitation::lock(*at);
  event->capture = at->capture;
  if (at->capture != nullptr) {
    event->clock = at->capture->clocks[at];
    return cudaSuccess;
  }
  imitation::Progress& progress = *event->progress;
  const std::uint64_t record = ++progress.asked;
  progress.stream = at;
  imitation::do_or_add(
      *at, [&] { imitation::reach(progress, record); },
      [&] { return [kept = event->progress, record] { imitation::reach(*kept, record); }; });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  CUstream_st* const at = imitation::stream_of(stream);
  if (at == nullptr || !imitation::known(event))
    return imitation::told(cudaErrorInvalidResourceHandle);
  const auto guard = imitation::lock(*at);
  if (at->capture != nullptr || event->capture != nullptr)
    return imitation::told(imitation::join(*at, *event));
  if (!imitation::late()) return cudaSuccess;  // what was asked for has been done
  const std::uint64_t record = event->progress->asked;
  imitation::add_work(
      *at, [progress = event->progress, record] { imitation::await(*progress, record); });
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!imitation::known(event)) return imitation::told(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) return imitation::told(cudaErrorCapturedEvent);
  if (!imitation::late() || event->progress->asked == 0) return cudaSuccess;
  const auto guard = imitation::lock(*event->progress->stream);
  imitation::await(*event->progress, event->progress->asked);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!imitation::known(event)) return imitation::told(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) return imitation::told(cudaErrorCapturedEvent);
  if (imitation::refused_by_capture()) return imitation::told(cudaErrorStreamCaptureUnsupported);
  const bool there = event->progress->reached == event->progress->asked;
  if (there) return cudaSuccess;
  cudaEventSynchronize(event);  // for the next question
  return imitation::told(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (!imitation::known(from) || !imitation::known(to))
    return imitation::told(cudaErrorInvalidResourceHandle);
  const imitation::Progress &a = *from->progress, &b = *to->progress;
  if (((from->flags | to->flags) & cudaEventDisableTiming) != 0 || a.asked == 0 || b.asked == 0)
    return imitation::told(cudaErrorInvalidResourceHandle);
  if (a.reached != a.asked || b.reached != b.asked) return imitation::told(cudaErrorNotReady);
  *milliseconds = static_cast<float>(static_cast<double>(b.nanoseconds - a.nanoseconds) * 1e-6);
  return cudaSuccess;
}
