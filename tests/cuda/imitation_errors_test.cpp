// Kernels that are wrong: each ends a process of its own, with one line that says why.

#include <cuda_runtime.h>
#include <doctest/doctest.h>
#include <starling_ptx.h>
#include <starling_shared.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/cuda/launch.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/imitation/imitation.h"

namespace starling::kernels::cuda {
namespace {

constexpr unsigned kAll = 0xffffffff;

__global__ void lane_has_returned(int* out) {
  if (threadIdx.x == 3) return;
  *out = __shfl_sync(kAll, 1, 0);
}
__global__ void lane_is_at_barrier(int* out) {
  if (threadIdx.x < 3)
    *out = __any_sync(kAll, 1);
  else
    __syncthreads();
}
__global__ void not_in_own_mask(int* out) {
  *out = __all_sync(~(1u << threadIdx.x), 1);
}
__global__ void not_in_the_block(int* out) {
  *out = static_cast<int>(__ballot_sync(kAll, 1));
}
__global__ void two_operations(int* out) {
  *out = threadIdx.x < 16 ? __shfl_xor_sync(kAll, 1, 1) : __shfl_down_sync(kAll, 1, 1u);
}
__global__ void two_masks(int* out) {
  *out = __shfl_xor_sync(threadIdx.x < 16 ? kAll : 0xfffffffeu, 1, 1);
}
__global__ void round_and_round(int*) {  // 0 for 1, 1 for 2, 2 for 0
  if (threadIdx.x < 3) __syncwarp(1u << threadIdx.x | 1u << ((threadIdx.x + 1) % 3));
}
__global__ void reads_outside_mask(int* out) {
  if (threadIdx.x < 4) *out = __shfl_sync(0xfu, 1, 4);
}
__global__ void odd_width(int* out) {
  *out = __shfl_sync(kAll, 1, 0, 12);
}
__global__ void copies_to_odd_address(const float4* in) {
  STARLING_DYNAMIC_SHARED(char, bytes);
  copy_async_16(bytes + 8, in);
}
__global__ void copies_to_global(float4* in) {
  copy_async_16(in + 1, in);
}
__global__ void copies_from_shared(int*) {
  STARLING_DYNAMIC_SHARED(char, bytes);
  copy_async_16(bytes, bytes + 16);
}
__global__ void loads_matrix_of_global(float4* in) {
  std::uint32_t r[4];
  load_matrix_x4(r, in);
}
__global__ void launches(int* out) {
  launch(nullptr, 1, 32, 0, launches, out);
}
__global__ void lacks_barrier(int* out) {
  STARLING_DYNAMIC_SHARED(int, words);
  words[threadIdx.x] = 1;
  out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x];
}
__global__ void lacks_warp_barrier(int* out) {  // a shuffle orders no memory
  __shared__ int words[32];
  words[threadIdx.x] = 1;
  out[threadIdx.x] = words[31 - threadIdx.x] + __shfl_xor_sync(kAll, 1, 1);
}
__global__ void writes_one_place(int* out) {
  *out = static_cast<int>(threadIdx.x);
}
__global__ void writes_past_shared(int* out) {
  STARLING_DYNAMIC_SHARED(int, words);
  words[threadIdx.x + 1] = 1;
  *out = words[0];
}
__global__ void writes_past_array(int* out) {
  out[threadIdx.x + 1] = 1;
}

__global__ void writes_past_fixed(int* out) {
  __shared__ int words[32];
  words[threadIdx.x + 1] = 1;
  *out = words[0];
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kOverruns = true;  // and of indices, with -fsanitize=undefined
#else
constexpr bool kOverruns = false;
#endif

struct Scenario {
  const char* name;
  void (*run)(int* memory);  // of 32 numbers
  const char* words;         // that it ends with
  bool seen = true;          // by what this was compiled with
};
template <auto kKernel>
void run(int* memory) {
  launch(nullptr, 1, 32, 32 * sizeof(int), kKernel, memory);
}
template <auto kKernel>
void run_vectors(int* memory) {
  launch(nullptr, 1, 32, 32 * sizeof(int), kKernel, reinterpret_cast<float4*>(memory));
}
void run_half_a_warp(int* memory) {
  launch(nullptr, 1, 16, 0, not_in_the_block, memory);
}
void follow_hidden(int*) {
  imitation::set_view(imitation::View::kHidden);
  const DeviceArray<int> hidden(4);
  launch(nullptr, 1, 1, 0, writes_one_place, hidden.data());
  std::printf("read %d\n", hidden.data()[0]);
}
const Scenario kScenarios[] = {
    {"a lane returns", run<lane_has_returned>,
     "lane_has_returned(int*), block (0, 0, 0), thread (3, 0, 0): returns while lanes of its warp "
     "wait"},
    {"a lane is at a barrier", run<lane_is_at_barrier>, "is at a barrier of the block while lanes"},
    {"not in its own mask", run<not_in_own_mask>,
     "__all_sync: mask 0xfffffffe without the lane itself"},
    {"not in the block", run_half_a_warp,
     "__ballot_sync: lanes 0xffff0000 of mask 0xffffffff are not in the block"},
    {"two operations", run<two_operations>,
     "thread (16, 0, 0): __shfl_down_sync with mask 0xffffffff, but lane 0 is at __shfl_xor_sync"},
    {"two masks", run<two_masks>, "__shfl_xor_sync with mask 0xfffffffe, but lane 1 is at"},
    {"all wait", run<round_and_round>,
     "thread (0, 0, 0): waits forever at __syncwarp with mask 0x00000003"},
    {"outside the mask", run<reads_outside_mask>, "reads lane 4, which is not in the mask"},
    {"an odd width", run<odd_width>, "a shuffle of width 12"},
    {"a copy to an odd address", run_vectors<copies_to_odd_address>, "no multiple of 16"},
    {"a copy to global memory", run_vectors<copies_to_global>, "not shared memory"},
    {"a copy from shared memory", run<copies_from_shared>, "not the device's memory"},
    {"a matrix in global memory", run_vectors<loads_matrix_of_global>, "not shared memory"},
    {"a launch in a kernel", run<launches>, "a kernel launches a kernel"},
    {"the host follows an address", follow_hidden, "SIGSEGV"},
    {"a missing barrier", run<lacks_barrier>, "data race", imitation::finds_races()},
    {"a missing barrier of a warp", run<lacks_warp_barrier>, "data race", imitation::finds_races()},
    {"one place, many threads", run<writes_one_place>, "data race", imitation::finds_races()},
    {"past shared memory", run<writes_past_shared>, "heap-buffer-overflow", kOverruns},
    {"past a fixed array", run<writes_past_fixed>, "out of bounds", kOverruns},
    {"past an array", run<writes_past_array>, "heap-buffer-overflow", kOverruns},
};

constexpr const char* kVariable = "STARLING_IMITATION_SCENARIO";
constexpr const char* kName = "imitation: one scenario that ends the process";

TEST_CASE("imitation: one scenario that ends the process" * doctest::skip()) {
  const char* const name = std::getenv(kVariable);
  REQUIRE(name != nullptr);
  std::signal(SIGABRT, SIG_DFL);  // no report of a crashed test
  imitation::set_order(imitation::Order::kAscending);
  imitation::set_work(imitation::Work::kAtOnce);
  imitation::set_view(imitation::View::kOpen);
  const DeviceArray<int> memory(32);
  for (const Scenario& scenario : kScenarios)
    if (scenario.name == std::string(name)) scenario.run(memory.data());
}

struct End {
  std::string words;  // of standard error
  int status;
};
// This program, with that test case alone. Nothing but exec comes after fork: a sanitizer may have threads.
End run_apart(const char* scenario) {
  std::array<int, 2> pipe_ends{};
  REQUIRE(pipe(pipe_ends.data()) == 0);
  REQUIRE(setenv(kVariable, scenario, 1) == 0);
  const std::string choice = std::string("--test-case=") + kName;
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDERR_FILENO);
    dup2(pipe_ends[1], STDOUT_FILENO);
    execl("/proc/self/exe", "cuda_tests", "--no-skip", choice.c_str(), nullptr);
    _exit(127);
  }
  REQUIRE(child > 0);
  close(pipe_ends[1]);
  End end{};
  std::array<char, 4096> part{};
  for (ssize_t n; (n = read(pipe_ends[0], part.data(), part.size())) > 0;)
    end.words.append(part.data(), static_cast<std::size_t>(n));
  close(pipe_ends[0]);
  REQUIRE(waitpid(child, &end.status, 0) == child);
  unsetenv(kVariable);
  return end;
}

// Method: what is wrong in the same way for every order of threads.
TEST_CASE("imitation: kernels that are wrong end the process and say why") {
  for (const Scenario& scenario : kScenarios) {
    if (!scenario.seen) continue;
    CAPTURE(std::string(scenario.name));
    const End end = run_apart(scenario.name);
    CAPTURE(end.words);
    CHECK(end.words.find(scenario.words) != std::string::npos);
    CHECK(end.status != 0);
    CHECK((WIFSIGNALED(end.status) || WEXITSTATUS(end.status) != 127));
  }
}

}  // namespace
}  // namespace starling::kernels::cuda
