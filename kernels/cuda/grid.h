#pragma once
// These functions do the jobs of the grid (kernels/device/jobs.h) on a device: each call only asks;
// the stream works in order. The results have the bits of kernels/device/host_jobs.cpp: sums and
// hashes are integers, so the order of threads does not matter, and every floating point operation
// is one IEEE operation. Threads: any, of distinct streams; scratch belongs to one stream.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/jobs.h"

namespace starling::kernels::cuda {

// Listed is a job's list of segments (in the host's memory) where kernels can read it.
struct Listed {
  const SegmentBlocks* list = nullptr;  // [count]
  std::uint32_t count = 0;
  std::uint32_t largest = 0;  // blocks of the largest of them
};

// Scratch is extra memory for one call; its content before and after has no meaning.
using Word = unsigned long long;  // of 64 bits, as atomics have it
std::size_t scratch_words(const AddJob& job, const Listed& listed);
std::size_t scratch_words(const WeighJob& job, const Listed& listed);
std::size_t scratch_words(const SquaresJob& job, const Listed& listed);
std::size_t scratch_words(const ApplyJob& job, const Listed& listed);
std::size_t scratch_words(const DigestJob& job, const Listed& listed);
std::size_t scratch_words(const NormJob& job);

// These are in grid.cu. `outside` is in no order.
void add(cudaStream_t stream, const AddJob& job, const Listed& listed, Word* scratch);
void gather(cudaStream_t stream, const GatherJob& job);
void weigh(cudaStream_t stream, const WeighJob& job, const Listed& listed, Word* scratch);
void sum(cudaStream_t stream, const SumJob& job);
void wide_means(cudaStream_t stream, const WideJob& job);
void squares(cudaStream_t stream, const SquaresJob& job, const Listed& listed, Word* scratch);
void norm(cudaStream_t stream, const NormJob& job, Word* scratch);
// These are in update.cu. apply() and local_step() require a job without an application's optimizer.
void apply(cudaStream_t stream, const ApplyJob& job, const Listed& listed, Word* scratch);
void multiple(cudaStream_t stream, const MultipleJob& job);
void difference(cudaStream_t stream, const DifferenceJob& job);
void local_step(cudaStream_t stream, const LocalStepJob& job);
void publish(cudaStream_t stream, const PublishJob& job, const Listed& listed);
// This is in hash.cu. seeds [listed.count] lie in memory that kernels read; null: all are `seed`.
void checksum(cudaStream_t stream, const ChecksumJob& job, const Listed& listed,
              const std::uint64_t* seeds, std::uint64_t seed = 0);
void digest(cudaStream_t stream, const DigestJob& job, const Listed& listed, Word* scratch);

}  // namespace starling::kernels::cuda
