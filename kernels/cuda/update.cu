#include <cmath>

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"
#include "kernels/grid/exponent.h"
#include "kernels/optim/update.h"

namespace starling::kernels::cuda {
namespace {

// Where infinities meet, a result is no number, and the host's processors write another
// one than a device does: this writes the host's, so that lost states are lost alike.
__device__ float as_on_host(float x) {
  return x != x ? __uint_as_float(0xffc00000u) : x;
}

// Updates real elements alone: the others stay as they are.
template <class Job>
__device__ void update_block(const Job& job, std::uint32_t block, const float (&gradient)[kEach]) {
  const std::uint32_t group = job.groups[block];
  const std::uint32_t used = job.used[block];
  const std::size_t at = element_of(block);
  float w[kEach], first[kEach];
  load(job.weights + at, w);
  if (job.numbers.groups[group].statistics) {
    for (std::uint32_t i = 0; i < kEach; ++i) {
      if (place(i) >= used) continue;
      statistic(gradient[i], w[i]);
      w[i] = as_on_host(w[i]);
    }
    store(job.weights + at, w);
    return;
  }
  load(job.first + at, first);
  if (job.numbers.sgd) {
    const SgdNumbers numbers = sgd_numbers(job.numbers, group);
    for (std::uint32_t i = 0; i < kEach; ++i) {
      if (place(i) >= used) continue;
      sgd(numbers, gradient[i], w[i], first[i]);
      w[i] = as_on_host(w[i]);
      first[i] = as_on_host(first[i]);
    }
  } else {
    const AdamNumbers numbers = adam_numbers(job.numbers, group);
    float second[kEach];
    load(job.second + at, second);
    for (std::uint32_t i = 0; i < kEach; ++i) {
      if (place(i) >= used) continue;
      adam(numbers, gradient[i], w[i], first[i], second[i]);
      w[i] = as_on_host(w[i]);
      first[i] = as_on_host(first[i]);
      second[i] = as_on_host(second[i]);
    }
    store(job.second + at, second);
  }
  store(job.weights + at, w);
  store(job.first + at, first);
}

// Three thread blocks share a processor: more would have registers in memory.
__global__ void __launch_bounds__(kThreads, 3)
    apply_kernel(ApplyJob job, Listed listed, std::uint32_t chunks) {
  const Chunk chunk(listed, chunks);
  const Means means(job.exponents, job.wide, job.micro_batches);
  for (std::uint32_t b = chunk.first + warp_of_thread(); b < chunk.end; b += kWarps) {
    std::int32_t total[kEach];
    load(job.totals + element_of(b), total);
    float mean[kEach];
    const float largest_side = means.make(b, total, mean);
    const float largest = __uint_as_float(largest_of_warp(mean));
    __syncwarp();  // all lanes have read the exponent
    if (lane_of_thread() == 0)
      job.exponents[b] = job.numbers.groups[job.groups[b]].statistics
                             ? kStatisticsExponent
                             : moved_exponent(job.limit_bits, job.headroom_bits, job.exponents[b],
                                              largest, largest_side, job.step);
    if (!job.skipped) update_block(job, b, mean);
  }
}

__global__ void __launch_bounds__(kThreads)
    publish_kernel(PublishJob job, Listed listed, std::uint32_t chunks) {
  const Chunk chunk(listed, chunks);
  for (std::uint32_t b = chunk.first + warp_of_thread(); b < chunk.end; b += kWarps) {
    float values[kEach];
    load(job.weights + element_of(b), values);
    for (float& value : values) value = rounded(value, job.precision);
    store(job.parameters + element_of(b), values);
    if (lane_of_thread() == 0) job.exponents[b] = job.held_exponents[b];
  }
}

__global__ void __launch_bounds__(kThreads) multiple_kernel(MultipleJob job, std::uint64_t blocks) {
  const std::uint64_t b = std::uint64_t{blockIdx.x} * kWarps + warp_of_thread();
  if (b >= blocks) return;
  float values[kEach];
  load(job.from + b * kBlock, values);
  for (float& value : values) value *= job.factor;
  if (job.adds) {
    float sum[kEach];
    load(job.to + b * kBlock, sum);
    for (std::uint32_t i = 0; i < kEach; ++i) values[i] = as_on_host(sum[i] + values[i]);
  }
  store(job.to + b * kBlock, values);
}

__global__ void __launch_bounds__(kThreads)
    difference_kernel(DifferenceJob job, std::uint64_t blocks) {
  const std::uint64_t b = std::uint64_t{blockIdx.x} * kWarps + warp_of_thread();
  if (b >= blocks) return;
  float before[kEach], after[kEach];
  load(job.before + b * kBlock, before);
  load(job.after + b * kBlock, after);
  for (std::uint32_t i = 0; i < kEach; ++i) after[i] = as_on_host(lost(before[i], after[i]));
  store(job.difference + b * kBlock, after);
}

__global__ void __launch_bounds__(kThreads, 3) local_step_kernel(LocalStepJob job) {
  const std::uint32_t b = blockIdx.x * kWarps + warp_of_thread();
  if (b >= job.blocks) return;
  float values[kEach];
  load(job.gradient + element_of(b), values);
  update_block(job, b, values);
  if (job.parameters == job.weights) return;
  load(job.weights + element_of(b), values);  // each thread's own
  for (float& value : values) value = rounded(value, job.precision);
  store(job.parameters + element_of(b), values);
}

}  // namespace

std::size_t scratch_words(const ApplyJob& job, const Listed&) {
  return copied_words(job.wide);
}

void apply(cudaStream_t stream, const ApplyJob& job, const Listed& listed, Word* scratch) {
  if (empty(listed)) return;
  ApplyJob here = job;
  here.wide = copied(stream, job.wide, scratch);
  launch(stream, grid_of(listed), kThreads, 0, apply_kernel, here, listed, chunks_of(listed));
  const ChecksumJob after{.exponents = job.exponents,
                          .arrays = {job.weights, job.first, job.second},
                          .segments = job.segments,
                          .seeds = nullptr,
                          .checksums = job.checksums};
  checksum(stream, after, listed, nullptr, /*seed=*/job.step + 1);
}

void multiple(cudaStream_t stream, const MultipleJob& job) {
  const std::uint64_t blocks = job.elements / kBlock;
  if (blocks == 0) return;
  launch(stream, static_cast<std::uint32_t>((blocks + kWarps - 1) / kWarps), kThreads, 0,
         multiple_kernel, job, blocks);
}

void difference(cudaStream_t stream, const DifferenceJob& job) {
  const std::uint64_t blocks = job.elements / kBlock;
  if (blocks == 0) return;
  launch(stream, static_cast<std::uint32_t>((blocks + kWarps - 1) / kWarps), kThreads, 0,
         difference_kernel, job, blocks);
}

void local_step(cudaStream_t stream, const LocalStepJob& job) {
  if (job.blocks == 0) return;
  launch(stream, (job.blocks + kWarps - 1) / kWarps, kThreads, 0, local_step_kernel, job);
}

void publish(cudaStream_t stream, const PublishJob& job, const Listed& listed) {
  if (empty(listed)) return;
  launch(stream, grid_of(listed), kThreads, 0, publish_kernel, job, listed, chunks_of(listed));
  const ChecksumJob after{.exponents = job.exponents,
                          .arrays = {job.parameters, nullptr, nullptr},
                          .segments = job.segments,
                          .seeds = nullptr,
                          .checksums = job.checksums};
  checksum(stream, after, listed, nullptr, /*seed=*/0);
}

}  // namespace starling::kernels::cuda
