// CUDA's functions for the host on the imitation: streams, events, graphs, threads.

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/imitated.h"

namespace starling::kernels::cuda {
namespace {

using imitation::Work;

struct Stream {
  Stream() { check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "a stream"); }
  ~Stream() { check(cudaStreamDestroy(handle), "a stream"); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return handle; }
  cudaStream_t handle = nullptr;
};

struct Event {
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    check(cudaEventCreateWithFlags(&handle, flags), "an event");
  }
  ~Event() { check(cudaEventDestroy(handle), "an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return handle; }
  cudaEvent_t handle = nullptr;
};

// ---- streams ------------------------------------------------------------------------------------

TEST_CASE("imitation: copies, sets and kernels of a stream come in order, whenever they are done") {
  for (const Work work : {Work::kAtOnce, Work::kLate}) {
    const WorkScope scope(work);
    const Stream stream;
    const int n = 100;
    DeviceArray<int> array(n);
    Pinned in(n), out(n);
    std::iota(in.data, in.data + n, 5);
    CHECK(cudaMemcpyAsync(array.data(), in.data, n * 4, cudaMemcpyHostToDevice, stream) ==
          cudaSuccess);
    launch(stream, 4, 32, 0, scale, n, 3, array.data());
    CHECK(cudaMemcpyAsync(out.data, array.data(), n * 4, cudaMemcpyDeviceToHost, stream) ==
          cudaSuccess);
    CHECK(cudaMemsetAsync(array.data(), 0, n * 4, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(out.all() == filled(n, 5, 3));
    CHECK(array.host() == std::vector<int>(n));
  }
}

// Goal: with late work, code that reads a result without waiting reads the old bytes.
TEST_CASE("imitation: late work is not there before somebody waits") {
  const WorkScope scope(Work::kLate);
  const Stream stream;
  Pinned out(10);
  const auto old = out.all();
  const auto ask = [&](int value) { launch(stream, 1, 32, 0, fill, 10, value, out.data); };
  ask(1);
  CHECK(out.all() == old);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  CHECK(out.all() == filled(10, 1));
  ask(2);
  const Event event;
  CHECK(cudaEventRecord(event, stream) == cudaSuccess);
  ask(3);
  CHECK(out.all() == filled(10, 1));
  CHECK(cudaEventSynchronize(event) == cudaSuccess);
  CHECK(out.all() == filled(10, 2));
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(out.all() == filled(10, 3));
  cudaGetLastError();  // of the query
}

TEST_CASE("imitation: a late copy of pageable memory has read it when the call returns") {
  const WorkScope scope(Work::kLate);
  const Stream stream;
  std::vector<int> in = filled(10, 1), out(10);
  DeviceArray<int> array(10);
  CHECK(cudaMemcpyAsync(array.data(), in.data(), 40, cudaMemcpyHostToDevice, stream) ==
        cudaSuccess);
  in.assign(10, 0);
  CHECK(cudaMemcpyAsync(out.data(), array.data(), 40, cudaMemcpyDeviceToHost, stream) ==
        cudaSuccess);
  CHECK(out == filled(10, 1));
}

TEST_CASE("imitation: a stream waits for another one's event") {
  const WorkScope scope(Work::kLate);
  const Stream first, second;
  DeviceArray<int> array(10);
  Pinned out(10);
  const Event event;
  launch(first, 1, 32, 0, fill, 10, 4, array.data());
  CHECK(cudaEventRecord(event, first) == cudaSuccess);
  launch(first, 1, 32, 0, scale, 10, 100, array.data());
  CHECK(cudaStreamWaitEvent(second, event) == cudaSuccess);
  CHECK(cudaMemcpyAsync(out.data, array.data(), 40, cudaMemcpyDeviceToHost, second) == cudaSuccess);
  CHECK(cudaStreamSynchronize(second) == cudaSuccess);
  CHECK(out.all() == filled(10, 4));
  CHECK(cudaStreamSynchronize(first) == cudaSuccess);
  CHECK(array.host() == filled(10, 4, 100));
}

TEST_CASE("imitation: times between events") {
  const Stream stream;
  const Event from(cudaEventDefault), to(cudaEventDefault), untimed;
  DeviceArray<int> array(1 << 16);
  float milliseconds = -1;
  CHECK(refused(cudaEventElapsedTime(&milliseconds, from, to)) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(from, stream) == cudaSuccess);
  launch(stream, 256, 256, 0, fill, 1 << 16, 1, array.data());
  CHECK(cudaEventRecord(to, stream) == cudaSuccess);
  CHECK(cudaEventSynchronize(to) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, from, to) == cudaSuccess);
  CHECK(milliseconds > 0);
  CHECK(refused(cudaEventElapsedTime(&milliseconds, from, untimed)) ==
        cudaErrorInvalidResourceHandle);
}

// ---- graphs -------------------------------------------------------------------------------------

// What a stream is asked between the calls, as a graph that can be launched.
template <class F>
cudaGraphExec_t capture(cudaStream_t stream, F ask) {
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  ask();
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  CHECK(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  return executable;
}

TEST_CASE("imitation: a graph does again what was captured, and nothing before") {
  for (const Work work : {Work::kAtOnce, Work::kLate}) {
    const WorkScope scope(work);
    const Stream stream;
    const int n = 50;
    DeviceArray<int> array(n);
    Pinned in(n), out(n);
    std::iota(in.data, in.data + n, 1);
    const auto untouched = out.all();
    int by = 3;  // an argument, which the launch copies
    const cudaGraphExec_t graph = capture(stream, [&] {
      check(cudaMemcpyAsync(array.data(), in.data, n * 4, cudaMemcpyHostToDevice, stream), "in");
      launch(stream, 2, 32, 0, scale, n, by, array.data());
      check(cudaMemcpyAsync(out.data, array.data(), n * 4, cudaMemcpyDeviceToHost, stream), "out");
    });
    by = 7;
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(out.all() == untouched);
    for (const int start : {1, 20}) {
      std::iota(in.data, in.data + n, start);
      CHECK(cudaGraphLaunch(graph, stream) == cudaSuccess);
      CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
      CHECK(out.all() == filled(n, start, 3));
    }
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    CHECK(refused(cudaGraphLaunch(graph, stream)) == cudaErrorInvalidValue);
  }
}

TEST_CASE("imitation: a capture goes over to streams that wait for its events") {
  const Stream stream, other;
  const Event fork, join;
  DeviceArray<int> a(10), b(10);
  const cudaGraphExec_t graph = capture(stream, [&] {
    launch(stream, 1, 32, 0, fill, 10, 1, a.data());
    check(cudaEventRecord(fork, stream), "fork");
    check(cudaStreamWaitEvent(other, fork), "fork");
    launch(other, 1, 32, 0, fill, 10, 2, b.data());
    check(cudaEventRecord(join, other), "join");
    launch(stream, 1, 32, 0, scale, 10, 2, a.data());
    check(cudaStreamWaitEvent(stream, join), "join");
    launch(stream, 1, 32, 0, scale, 10, 5, b.data());
  });
  CHECK(cudaGraphLaunch(graph, stream) == cudaSuccess);
  CHECK(a.host() == filled(10, 1, 2));
  CHECK(b.host() == filled(10, 2, 5));
  CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamSynchronize(other) == cudaSuccess);  // no part of a capture any more
}

TEST_CASE("imitation: captures that CUDA refuses") {
  const Stream stream, other;
  const Event event;
  DeviceArray<int> array(10);
  cudaGraph_t graph = nullptr;
  const auto begin = [&] {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    launch(stream, 1, 32, 0, fill, 10, 1, array.data());
  };
  const auto end = [&] { return refused(cudaStreamEndCapture(stream, &graph)); };

  CHECK(refused(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal)) ==
        cudaErrorStreamCaptureUnsupported);
  CHECK(end() == cudaErrorIllegalState);

  begin();
  CHECK(refused(cudaStreamSynchronize(stream)) == cudaErrorStreamCaptureUnsupported);
  CHECK(end() == cudaErrorStreamCaptureInvalidated);
  CHECK(graph == nullptr);

  begin();
  void* at = nullptr;
  CHECK(refused(cudaMalloc(&at, 16)) == cudaErrorStreamCaptureUnsupported);
  CHECK(end() == cudaErrorStreamCaptureInvalidated);

  begin();  // with work of another stream that the end does not come after
  check(cudaEventRecord(event, stream), "fork");
  check(cudaStreamWaitEvent(other, event), "fork");
  launch(other, 1, 32, 0, scale, 10, 2, array.data());
  CHECK(refused(cudaEventQuery(event)) == cudaErrorCapturedEvent);
  CHECK(refused(cudaStreamEndCapture(other, &graph)) == cudaErrorStreamCaptureUnmatched);
  CHECK(end() == cudaErrorStreamCaptureInvalidated);
  begin();
  check(cudaEventRecord(event, stream), "fork");
  check(cudaStreamWaitEvent(other, event), "fork");
  launch(other, 1, 32, 0, scale, 10, 2, array.data());
  CHECK(end() == cudaErrorStreamCaptureUnjoined);

  const Event outside;
  check(cudaEventRecord(outside, other), "outside");
  begin();
  CHECK(refused(cudaStreamWaitEvent(stream, outside)) == cudaErrorStreamCaptureIsolation);
  CHECK(end() == cudaErrorStreamCaptureInvalidated);

  begin();
  std::thread([&] {
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureWrongThread);
  }).join();
  CHECK(end() == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE("imitation: handles that are none are refused") {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -5), "a stream");
  check(cudaEventCreate(&event), "an event");
  check(cudaStreamDestroy(stream), "a stream");
  check(cudaEventDestroy(event), "an event");
  CHECK(refused(cudaStreamSynchronize(stream)) == cudaErrorInvalidResourceHandle);
  CHECK(refused(cudaStreamDestroy(stream)) == cudaErrorInvalidResourceHandle);
  CHECK(refused(cudaEventRecord(event, nullptr)) == cudaErrorInvalidResourceHandle);
  CHECK(refused(cudaEventDestroy(event)) == cudaErrorInvalidResourceHandle);
}

// ---- threads ------------------------------------------------------------------------------------

__global__ void add_up(int n, const int* in, int* blocks, unsigned long long* total) {
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) atomicAdd(&sum, in[i]);
  __syncthreads();
  if (threadIdx.x != 0) return;
  blocks[blockIdx.x] = sum;
  atomicAdd(total, static_cast<unsigned long long>(sum));
}

// Goal: shared memory, indices and fibers are of one thread; atomics are of all.
TEST_CASE("imitation: two threads with a stream each do not disturb each other") {
  const int n = 1000, rounds = 20;
  DeviceArray<unsigned long long> total(1);
  total.zero();
  const auto work = [&](int start) {
    const Stream stream;
    const DeviceArray<int> in(filled(n, start));
    DeviceArray<int> blocks(8);
    std::vector<int> wanted(8);
    for (int i = 0; i < n; ++i) wanted[static_cast<std::size_t>(i / 128)] += start + i;
    bool right = true;
    for (int i = 0; i < rounds; ++i) {
      launch(stream, 8, 128, 0, add_up, n, in.data(), blocks.data(), total.data());
      right = right && blocks.host() == wanted;
    }
    CHECK(right);
  };
  std::thread one(work, 1), two(work, 1000);
  one.join();
  two.join();
  const unsigned long long sums = n * (n - 1ull) / 2;
  CHECK(total.host()[0] == rounds * (2 * sums + 1001ull * n));
}

// Arrays of each thread's own, on both sides of a barrier.
__global__ void rotate(int* out) {
  __shared__ int all[64];
  int mine[3] = {static_cast<int>(threadIdx.x), 2, 3};
  all[threadIdx.x] = mine[threadIdx.x % 3];
  mine[threadIdx.x % 3] = 7;
  __syncthreads();
  const int theirs[2] = {all[(threadIdx.x + 1) % 64], mine[threadIdx.x % 3]};
  out[threadIdx.x] = theirs[0] + theirs[1];
}
TEST_CASE("imitation: threads that come and go") {
  DeviceArray<int> out(64);
  for (int round = 0; round < 20; ++round) {
    std::thread([&] { launch(nullptr, 1, 64, 0, rotate, out.data()); }).join();
    const auto got = out.host();
    for (int i = 0; i < 64; ++i) {
      const int next = (i + 1) % 64;
      const int first = next % 3 == 0 ? next : next % 3 + 1;
      CHECK(got[static_cast<std::size_t>(i)] == first + 7);
    }
  }
}

}  // namespace
}  // namespace starling::kernels::cuda
