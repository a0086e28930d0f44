#include <cuda_runtime.h>

#include <atomic>
#include <memory>
#include <set>

#include "tests/cuda/imitation/errors.h"
#include "tests/cuda/imitation/streams.h"

namespace imitation = starling::imitation;

struct CUgraph_st {
  std::shared_ptr<const std::vector<imitation::Task>> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<imitation::Task>> nodes;
};

namespace starling::imitation {
namespace {

// Captures that go on, and graphs that were not destroyed.
struct Graphs {
  std::mutex mutex;
  std::set<Capture*> captures;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> executables;
  std::atomic<int> captures_count{0};
};
Graphs& graphs() {
  static auto* const graphs = new Graphs;
  return *graphs;
}

// All that the streams did comes before the origin's end.
bool joined(const Capture& capture) {
  const Clock& end = capture.clocks.at(capture.origin);
  for (const auto& [stream, clock] : capture.clocks) {
    if (stream == capture.origin) continue;
    const auto own = clock.find(stream);
    const std::size_t last = own == clock.end() ? 0 : own->second;
    const auto seen = end.find(stream);
    if (last > (seen == end.end() ? 0 : seen->second)) return false;
  }
  return true;
}

cudaError_t end_of(const CUstream_st& stream, const Capture& capture) {
  if (capture.origin != &stream) return cudaErrorStreamCaptureUnmatched;
  if (capture.mode != cudaStreamCaptureModeRelaxed && capture.thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
  return joined(capture) ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

}  // namespace

bool refused_by_capture() {
  if (graphs().captures_count == 0) return false;
  const std::lock_guard guard(graphs().mutex);
  bool refused = false;
  for (Capture* const capture : graphs().captures) {
    const bool own = capture->thread == std::this_thread::get_id();
    if (capture->mode == cudaStreamCaptureModeRelaxed ||
        (capture->mode == cudaStreamCaptureModeThreadLocal && !own))
      continue;
    capture->invalidated = true;
    refused = true;
  }
  return refused;
}

}  // namespace starling::imitation

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (stream == nullptr) return imitation::told(cudaErrorStreamCaptureUnsupported);
  if (imitation::stream_of(stream) == nullptr)
    return imitation::told(cudaErrorInvalidResourceHandle);
  const auto guard = imitation::lock(*stream);
  if (stream->capture != nullptr) return imitation::told(cudaErrorIllegalState);
  auto capture = std::make_shared<imitation::Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->clocks[stream];
  {
    const std::lock_guard graphs_guard(imitation::graphs().mutex);
    imitation::graphs().captures.insert(capture.get());
    ++imitation::graphs().captures_count;
  }
  stream->capture = std::move(capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream == nullptr || imitation::stream_of(stream) == nullptr)
    return imitation::told(cudaErrorInvalidResourceHandle);
  const auto guard = imitation::lock(*stream);
  const std::shared_ptr<imitation::Capture> capture = stream->capture;
  if (capture == nullptr) return imitation::told(cudaErrorIllegalState);
  *graph = nullptr;
  const cudaError_t error = imitation::end_of(*stream, *capture);
  if (error == cudaErrorStreamCaptureUnmatched || error == cudaErrorStreamCaptureWrongThread) {
    capture->invalidated = true;
    return imitation::told(error);
  }
  capture->ended = true;
  for (const auto& [taking_part, clock] : capture->clocks) taking_part->capture.reset();
  const std::lock_guard graphs_guard(imitation::graphs().mutex);
  imitation::graphs().captures.erase(capture.get());
  --imitation::graphs().captures_count;
  if (error != cudaSuccess) return imitation::told(error);
  auto made = std::make_unique<CUgraph_st>();
  made->nodes = std::make_shared<const std::vector<imitation::Task>>(std::move(capture->nodes));
  imitation::graphs().graphs.insert(made.get());
  *graph = made.release();
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  CUstream_st* const at = imitation::stream_of(stream);
  if (at == nullptr) return imitation::told(cudaErrorInvalidResourceHandle);
  const auto guard = imitation::lock(*at);
  *status = at->capture == nullptr     ? cudaStreamCaptureStatusNone
            : at->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  const std::lock_guard guard(imitation::graphs().mutex);
  if (executable == nullptr || !imitation::graphs().graphs.contains(graph))
    return imitation::told(cudaErrorInvalidValue);
  auto made = std::make_unique<CUgraphExec_st>();
  made->nodes = graph->nodes;
  imitation::graphs().executables.insert(made.get());
  *executable = made.release();
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) {
  return imitation::told(imitation::stream_of(stream) == nullptr ? cudaErrorInvalidResourceHandle
                                                                 : cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  CUstream_st* const at = imitation::stream_of(stream);
  if (at == nullptr) return imitation::told(cudaErrorInvalidResourceHandle);
  std::shared_ptr<const std::vector<imitation::Task>> nodes;
  {
    const std::lock_guard guard(imitation::graphs().mutex);
    if (!imitation::graphs().executables.contains(executable))
      return imitation::told(cudaErrorInvalidValue);
    nodes = executable->nodes;
  }
  const auto guard = imitation::lock(*at);
  imitation::add_work(*at, [nodes] {
    for (const imitation::Task& task : *nodes) task();
  });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard guard(imitation::graphs().mutex);
  if (imitation::graphs().graphs.erase(graph) == 0) return imitation::told(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const std::lock_guard guard(imitation::graphs().mutex);
  if (imitation::graphs().executables.erase(executable) == 0)
    return imitation::told(cudaErrorInvalidValue);
  delete executable;
  return cudaSuccess;
}
