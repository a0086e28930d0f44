#include "kernels/cuda/recorder.h"

#include <utility>

#include "kernels/cuda/launch.h"

namespace starling::kernels::cuda {

void Recorder::run(std::size_t number, const std::function<void()>& ask) {
  if (number >= pieces_.size()) pieces_.resize(number + 1);
  Piece& piece = pieces_[number];
  if (!std::exchange(piece.ran, true)) return ask();
  if (piece.graph == nullptr) {
    // The capture is this thread's: others may go on asking for what a capture forbids.
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "a capture");
    ask();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_, &graph), "a capture");
    check(cudaGraphInstantiate(&piece.graph, graph, 0), "a graph");
    check(cudaGraphDestroy(graph), "a graph");
  }
  check(cudaGraphLaunch(piece.graph, stream_), "a graph");
}

void Recorder::forget() {
  for (const Piece& piece : pieces_)
    if (piece.graph != nullptr) check(cudaGraphExecDestroy(piece.graph), "a graph");
  pieces_.clear();
}

}  // namespace starling::kernels::cuda
