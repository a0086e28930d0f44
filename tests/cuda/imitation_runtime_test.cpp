// CUDA's functions for the host on the imitation: memory, streams, events, graphs, launches.

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/imitation/imitation.h"

namespace starling::kernels::cuda {
namespace {

using imitation::Work;

// A way of streams, for a scope.
class WorkScope {
 public:
  explicit WorkScope(Work work) { imitation::set_work(work); }
  ~WorkScope() { imitation::set_work(Work::kAtOnce); }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;
};

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

// Memory that host and device follow.
struct Pinned {
  explicit Pinned(std::size_t n) : size(n) {
    check(cudaHostAlloc(&data, n * sizeof(int), cudaHostAllocDefault), "pinned memory");
  }
  ~Pinned() { check(cudaFreeHost(data), "pinned memory"); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  std::vector<int> all() const { return {data, data + size}; }
  int* data = nullptr;
  std::size_t size;
};

__global__ void fill(int n, int value, int* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = value + i;
}
__global__ void scale(int n, int by, int* values) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) values[i] *= by;
}

std::vector<int> filled(int n, int value, int by = 1) {
  std::vector<int> all(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) all[static_cast<std::size_t>(i)] = (value + i) * by;
  return all;
}

// The error of a call, which is also the thread's last one.
cudaError_t refused(cudaError_t error) {
  CHECK(cudaGetLastError() == error);
  CHECK(cudaGetLastError() == cudaSuccess);
  return error;
}

// ---- memory -------------------------------------------------------------------------------------

TEST_CASE("imitation: memory holds no zeros at first and lies at 256 bytes") {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{300}, std::size_t{1} << 20}) {
    std::byte *device = nullptr, *pinned = nullptr;
    CHECK(cudaMalloc(&device, bytes) == cudaSuccess);
    CHECK(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault) == cudaSuccess);
    CHECK(reinterpret_cast<std::uintptr_t>(device) % 256 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(pinned) % 256 == 0);
    CHECK(cudaMemcpy(pinned, device, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(std::all_of(pinned, pinned + bytes, [](std::byte b) { return b == std::byte{0xa5}; }));
    CHECK(cudaFree(device) == cudaSuccess);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
  }
  CHECK(cudaFree(nullptr) == cudaSuccess);
}

TEST_CASE("imitation: what is free falls with what is taken") {
  std::size_t before = 0, after = 0, total = 0;
  CHECK(cudaMemGetInfo(&before, &total) == cudaSuccess);
  void* at = nullptr;
  CHECK(cudaMalloc(&at, 4096) == cudaSuccess);
  CHECK(cudaMemGetInfo(&after, &total) == cudaSuccess);
  CHECK(before - after == 4096);
  CHECK(before <= total);
  CHECK(cudaFree(at) == cudaSuccess);
  CHECK(refused(cudaMalloc(&at, total + 1)) == cudaErrorMemoryAllocation);
}

TEST_CASE("imitation: addresses that no piece of memory begins at are not given back") {
  int on_stack = 0;
  const DeviceArray<int> array(4);
  const Pinned pinned(4);
  CHECK(refused(cudaFree(&on_stack)) == cudaErrorInvalidValue);
  CHECK(refused(cudaFree(array.data() + 1)) == cudaErrorInvalidValue);
  CHECK(refused(cudaFree(pinned.data)) == cudaErrorInvalidValue);
  CHECK(refused(cudaFreeHost(array.data())) == cudaErrorInvalidValue);
  void* at = nullptr;
  CHECK(cudaMalloc(&at, 16) == cudaSuccess);
  CHECK(cudaFree(at) == cudaSuccess);
  CHECK(refused(cudaFree(at)) == cudaErrorInvalidValue);
}

TEST_CASE("imitation: copies look at both ends") {
  const DeviceArray<int> a(8), b(8);
  const Pinned pinned(8);
  std::vector<int> host(8);
  struct Case {
    void* to;
    const void* from;
    std::size_t bytes;
    cudaMemcpyKind kind;
    cudaError_t error;
  };
  const Case cases[] = {
      {a.data(), host.data(), 32, cudaMemcpyHostToDevice, cudaSuccess},
      {a.data(), pinned.data, 32, cudaMemcpyHostToDevice, cudaSuccess},
      {host.data(), a.data() + 4, 16, cudaMemcpyDeviceToHost, cudaSuccess},
      {b.data(), a.data(), 32, cudaMemcpyDeviceToDevice, cudaSuccess},
      {b.data(), host.data(), 32, cudaMemcpyDefault, cudaSuccess},
      {host.data(), host.data() + 4, 16, cudaMemcpyHostToHost, cudaSuccess},
      {a.data(), host.data(), 0, cudaMemcpyHostToDevice, cudaSuccess},
      {a.data(), host.data(), 33, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
      {a.data() + 1, host.data(), 32, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
      {host.data(), host.data() + 4, 16, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
      {host.data(), a.data(), 16, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
      {a.data(), b.data(), 16, cudaMemcpyDeviceToHost, cudaErrorInvalidValue},
      {a.data(), host.data(), 16, cudaMemcpyDeviceToDevice, cudaErrorInvalidValue},
      {nullptr, host.data(), 16, cudaMemcpyDefault, cudaErrorInvalidValue},
  };
  for (const Case& c : cases) {
    CAPTURE(&c - cases);
    CHECK(refused(cudaMemcpyAsync(c.to, c.from, c.bytes, c.kind, nullptr)) == c.error);
  }
  CHECK(refused(cudaMemsetAsync(host.data(), 0, 4, nullptr)) == cudaErrorInvalidValue);
  CHECK(refused(cudaMemsetAsync(a.data() + 7, 0, 5, nullptr)) == cudaErrorInvalidValue);
}

// ---- launches -----------------------------------------------------------------------------------

TEST_CASE("imitation: a launch that the device cannot make is refused with CUDA's error") {
  DeviceArray<int> out(1);
  const auto launched = [&](dim3 grid, dim3 block, std::size_t shared) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    return refused(cudaLaunchKernelEx(&config, fill, 1, 1, out.data()));
  };
  const auto allow = [](int bytes) {
    return refused(cudaFuncSetAttribute(reinterpret_cast<const void*>(&fill),
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  };
  constexpr int kLeast = 48 * 1024, kMost = 227 * 1024;
  CHECK(launched(1, 1024, kLeast) == cudaSuccess);
  CHECK(launched(1, 1025, 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(1, dim3(32, 33), 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(1, dim3(1, 1, 65), 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(1, 0, 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(0, 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(dim3(1, 0), 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(launched(1, 32, kLeast + 1) == cudaErrorInvalidValue);
  CHECK(allow(kMost + 1) == cudaErrorInvalidValue);
  CHECK(allow(kMost) == cudaSuccess);
  CHECK(launched(1, 32, kMost) == cudaSuccess);
  CHECK(launched(1, 32, kMost + 1) == cudaErrorInvalidValue);
  CHECK(allow(0) == cudaSuccess);
}

TEST_CASE("imitation: what ran is counted by kernel") {
  imitation::clear_launches();
  DeviceArray<int> out(100);
  launch(nullptr, 4, 32, 0, fill, 100, 1, out.data());
  launch(nullptr, dim3(2, 3), dim3(8, 2), 0, fill, 0, 1, out.data());
  launch(nullptr, 1, 1, 0, scale, 1, 1, out.data());
  const auto all = imitation::launches();
  REQUIRE(all.size() == 2);
  CHECK(all[0].kernel == "starling::kernels::cuda::(anonymous namespace)::fill(int, int, int*)");
  CHECK(all[0].launches == 2);
  CHECK(all[0].blocks == 10);
  CHECK(all[0].threads == 4 * 32 + 6 * 16);
  CHECK(all[1].kernel.find("scale") != std::string::npos);
  CHECK(all[1].threads == 1);
  CHECK(imitation::launches_table().find("::fill(int, int, int*)\n") != std::string::npos);
  imitation::clear_launches();
  CHECK(imitation::launches().empty());
}

TEST_CASE("imitation: the device") {
  int count = 0, value = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 1);
  CHECK(cudaSetDevice(0) == cudaSuccess);
  CHECK(refused(cudaSetDevice(1)) == cudaErrorInvalidDevice);
  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, 0) == cudaSuccess);
  CHECK(std::string(p.name) == "imitated GPU");
  CHECK(p.major * 10 + p.minor == 90);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
  CHECK(value == 4);
  CHECK(std::string(cudaGetErrorString(cudaErrorInvalidValue)) == "invalid argument");
}

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

// Goal: work that is done late shows who does not wait.
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
  CHECK(cudaEventQuery(to) == cudaSuccess);
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

}  // namespace
}  // namespace starling::kernels::cuda
