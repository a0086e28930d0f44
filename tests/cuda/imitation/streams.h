#pragma once
// Streams, what they have been asked and what is recorded of them.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/cuda/imitation/runtime.h"

namespace starling::imitation {

using Task = std::function<void()>;
// How much of each stream's captured work comes before something: numbers of nodes.
using Clock = std::map<const CUstream_st*, std::size_t>;

// What streams are asked between cudaStreamBeginCapture() and cudaStreamEndCapture().
struct Capture {
  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool invalidated = false, ended = false;
  std::vector<Task> nodes;               // in the order in which they were asked for
  std::map<CUstream_st*, Clock> clocks;  // of the streams that take part
};

}  // namespace starling::imitation

struct CUstream_st {
  std::deque<starling::imitation::Task> waiting;  // nothing unless work is done late
  std::shared_ptr<starling::imitation::Capture> capture;
  // Kept while its work runs.
  std::recursive_mutex mutex;
};

namespace starling::imitation {

// The stream behind a handle; null if it is none.
CUstream_st* stream_of(cudaStream_t stream);

// Holds what a stream's work needs, while it is asked for and done.
std::unique_lock<std::recursive_mutex> lock(CUstream_st& stream);

// Work is put off until something waits for it.
bool late();

// Does work, or has it done when its turn comes. later() gives the work a form that can be
// kept.
// Requires lock().
void add_work(CUstream_st& stream, Task task);
template <class Now, class Later>
void do_or_add(CUstream_st& stream, const Now& now, const Later& later) {
  if (stream.capture == nullptr && !late())
    now();
  else
    add_work(stream, later());
}
// Does all that a stream was asked.
void finish(CUstream_st& stream);
void finish_all();

// Whether a call that no capture can take is made while one goes on; that ends the captures.
bool refused_by_capture();

}  // namespace starling::imitation
