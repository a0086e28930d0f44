#pragma once
// A Recorder makes graphs of work that is asked for again and again: launching
// a hundred kernels costs the host more than a small device takes to run them.

#include <cuda_runtime.h>

#include <functional>
#include <vector>

namespace starling::kernels::cuda {

// A Recorder runs numbered pieces of work on a stream. The first time each runs as
// it is asked for (that also loads its kernels), the second time it is captured,
// and from then on its graph runs. Until forget(), a piece always asks for the
// same, of the same addresses. Threads: those of the stream, one at a time.
class Recorder {
 public:
  explicit Recorder(cudaStream_t stream) : stream_(stream) {}
  ~Recorder() { forget(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void run(std::size_t piece, const std::function<void()>& ask);
  void forget();

 private:
  struct Piece {
    bool ran = false;
    cudaGraphExec_t graph = nullptr;  // null: not captured yet
  };
  const cudaStream_t stream_;
  std::vector<Piece> pieces_;
};

}  // namespace starling::kernels::cuda
